//! The entries of `--each-line` and `--from-json`.

use std::io::Read;
use std::path::Path;

use verb::errors::Failure;

/// The maximum size of a file of entries.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The values of the tasks; `None`: neither option is given.
pub(crate) fn read(
    lines: Option<&Path>,
    json: Option<&Path>,
) -> Result<Option<Vec<String>>, Failure> {
    match (lines, json) {
        (Some(file), _) => {
            let text = text(file)?;
            Ok(Some(text.lines().map(str::to_owned).collect()))
        }
        (None, Some(file)) => values(file, &text(file)?).map(Some),
        (None, None) => Ok(None),
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    let failed = |error: &std::io::Error| Failure::file(path, error);
    let file: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(|error| failed(&error))?),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::refused(format!("{}: it has more than 256 MiB", path.display()))
            .hint("divide it into several jobs"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::refused(format!("{}: it is not valid UTF-8", path.display())))
}

fn values(path: &Path, text: &str) -> Result<Vec<String>, Failure> {
    let wrong = |what: String| Failure::refused(format!("{}: {what}", path.display()));
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Array(values)) => {
            Ok(values.iter().map(ToString::to_string).collect())
        }
        Ok(_) => {
            Err(wrong("the outermost value must be an array, with a value for each task".into()))
        }
        Err(error) => Err(wrong(format!("it is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compact_json() {
        let path = Path::new("f");
        let read = |text: &str| values(path, text).map_err(|failure| failure.message);
        let text = "[123, {\"x b\" :\n[1, 2]}, 2.5, \"a \\\" b\"]";
        let expected = ["123", "{\"x b\":[1,2]}", "2.5", "\"a \\\" b\""];
        assert_eq!(read(text).unwrap(), expected);
        assert!(read("{\"x\": 1}").unwrap_err().contains("must be an array"));
        assert!(read("[1,").unwrap_err().contains("not JSON"));
    }
}
