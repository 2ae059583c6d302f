//! The page: three files, built from `web/app` by `scripts/build-page`.

/// The names and types of the files, and their bytes as gzip.
pub const FILES: [(&str, &str, &[u8]); 3] = [
    ("index.html", "text/html; charset=utf-8", include_bytes!("../assets/index.html.gz")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../assets/app.js.gz")),
    ("app.css", "text/css; charset=utf-8", include_bytes!("../assets/app.css.gz")),
];

/// The type and the bytes of a file.
#[must_use]
pub fn find(name: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|file| file.0 == name).map(|file| (file.1, file.2))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn text(name: &str) -> String {
        let mut text = String::new();
        let (_, bytes) = find(name).expect("it is one of the files");
        flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("it is gzip");
        text
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.2.len()).sum();
        assert!(bytes <= 150 << 10, "{bytes} bytes");
    }

    #[test]
    fn the_page_has_no_inline_script_and_relative_addresses_only() {
        let page = text("index.html");
        assert!(page.contains("<script src=\"app.js\"") && page.contains("href=\"app.css\""));
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains(" on"));
        for file in ["index.html", "app.js", "app.css"] {
            let text = text(file);
            assert!(!text.contains("innerHTML=") || file == "app.js", "{file}");
            assert!(!text.contains("https://") && !text.contains("\"/api"), "{file}");
        }
    }
}
