//! Access to the reference data, where they exist.

use std::path::PathBuf;

/// A file or folder of the reference data. If it is absent, prints that and returns `None`.
#[expect(clippy::print_stdout, reason = "a test says why it is skipped")]
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {name} in the reference data");
    None
}

/// The fields of a CSV file's rows without its header; quotes may enclose commas.
pub(crate) fn rows(name: &str) -> Option<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(find(name)?).expect("it can be read");
    Some(text.lines().skip(1).map(fields).collect())
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is one").push(letter),
        }
    }
    fields
}
