//! The page: three files, built from `web/app` by `scripts/build-page`.

use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    pub name: &'static str,
    pub kind: &'static str,
    /// Compressed: every browser can undo it.
    pub gzip: Vec<u8>,
}

static FILES: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        asset("index.html", "text/html; charset=utf-8", include_bytes!("../assets/index.html")),
        asset("app.js", "text/javascript; charset=utf-8", include_bytes!("../assets/app.js")),
        asset("app.css", "text/css; charset=utf-8", include_bytes!("../assets/app.css")),
    ]
});

fn asset(name: &'static str, kind: &'static str, bytes: &[u8]) -> Asset {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    Asset { name, kind, gzip: written.expect("memory takes all bytes") }
}

/// A file by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Asset> {
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../assets/index.html");
    const SCRIPT: &str = include_str!("../assets/app.js");
    const STYLE: &str = include_str!("../assets/app.css");

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(bytes <= 150 << 10, "{bytes} bytes");
    }

    #[test]
    fn the_page_has_no_inline_script_and_relative_addresses_only() {
        assert!(PAGE.contains("<script src=\"app.js\" defer></script>"));
        assert!(PAGE.contains("href=\"app.css\""));
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(!PAGE.contains("<style") && !PAGE.contains("style="));
        for part in PAGE.split('=') {
            let name = part.rsplit([' ', '"']).next().unwrap_or_default();
            assert!(!name.starts_with("on"), "{part}: no attribute has a script");
        }
        for text in [PAGE, STYLE] {
            assert!(!text.contains("//") && !text.contains("url("));
        }
        assert!(SCRIPT.contains("\"api/v1/overview\"") && !SCRIPT.contains("\"/api"));
        // Preact names the spaces of SVG and MathML, which no browser loads.
        let named = SCRIPT.matches("http://").count();
        assert_eq!(named, SCRIPT.matches("http://www.w3.org/").count());
        assert!(!SCRIPT.contains("https://") && !SCRIPT.contains("eval("));
    }
}
