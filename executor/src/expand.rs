/*!
Placeholders of arguments, environment values, paths and file names.

`{i}` is the task's entry in its array, `{job}` and `{task}` its ids, `{in:NAME}` the path of the
input called NAME (of all of them, separated by spaces, when several share the name) and
`{out:NAME}` the path the output called NAME is to be written to. Any other brace stays as it is:
shell and awk programs are full of them. There is no escape; a program that needs a literal `{i}`
can get it from a file.

```
use executor::expand::Scope;
let scope = Scope { entry: 3, job: "7", task: "0.3", inputs: &[], outputs: &[] };
assert_eq!(scope.expand("awk '{print $1}' part-{i}").as_deref(), Ok("awk '{print $1}' part-3"));
```
*/

/// A file by the name its task knows it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub key: String,
    pub path: String,
}

/// What placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub entry: u64,
    pub job: &'a str,
    pub task: &'a str,
    pub inputs: &'a [Named],
    pub outputs: &'a [Named],
}

impl Scope<'_> {
    /// Replaces the placeholders of `text`. Fails when one names an input or output that the task
    /// does not have.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        if !text.contains('{') {
            return Ok(text.to_owned());
        }
        let mut out = String::with_capacity(text.len() + 16);
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            rest = &rest[open..];
            let name = rest.find('}').map(|close| &rest[1..close]);
            match name.map(|name| self.value(name)).transpose()?.flatten() {
                Some(value) => {
                    out.push_str(&value);
                    rest = &rest[name.map_or(0, str::len) + 2..];
                }
                None => {
                    out.push('{');
                    rest = &rest[1..];
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// What `{name}` stands for; none when it is no placeholder.
    fn value(&self, name: &str) -> Result<Option<String>, String> {
        let (files, key, kind) = if let Some(key) = name.strip_prefix("in:") {
            (self.inputs, key, "input")
        } else if let Some(key) = name.strip_prefix("out:") {
            (self.outputs, key, "output")
        } else {
            return Ok(match name {
                "i" => Some(self.entry.to_string()),
                "job" => Some(self.job.to_owned()),
                "task" => Some(self.task.to_owned()),
                _ => None,
            });
        };
        let paths = paths_of(files, key);
        if paths.is_empty() {
            return Err(format!("placeholder {{{name}}}: the task has no {kind} '{key}'"));
        }
        Ok(Some(paths))
    }
}

/// The paths of all files of that name, separated by spaces.
fn paths_of(files: &[Named], key: &str) -> String {
    let mut paths = String::new();
    for file in files.iter().filter(|file| file.key == key) {
        if !paths.is_empty() {
            paths.push(' ');
        }
        paths.push_str(&file.path);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let named = |key: &str, path: &str| Named { key: key.into(), path: path.into() };
        let inputs = [named("a", "/t/x"), named("b", "/t/y"), named("a", "/t/{i}")];
        let outputs = [named("o", "/t/out")];
        let scope = Scope { entry: 12, job: "7", task: "3.4", inputs: &inputs, outputs: &outputs };
        scope.expand(text)
    }

    #[test]
    fn known_placeholders_are_replaced() {
        assert_eq!(expand("{i}-{job}-{task}").unwrap(), "12-7-3.4");
        assert_eq!(expand("cat {in:b} > {out:o}").unwrap(), "cat /t/y > /t/out");
    }

    #[test]
    fn what_a_placeholder_stands_for_is_not_expanded_again() {
        assert_eq!(expand("{in:a}").unwrap(), "/t/x /t/{i}");
    }

    #[test]
    fn other_braces_stay() {
        for text in ["{print $1}", "{", "}", "{}", "{{x}}", "${HOME}", "{I}", "ä{ö}", "{in"] {
            assert_eq!(expand(text).unwrap(), text);
        }
        assert_eq!(expand("{{i}}").unwrap(), "{12}");
        assert_eq!(expand("{a{i}").unwrap(), "{a12");
    }

    #[test]
    fn unknown_files_are_named() {
        let error = expand("x {in:c}").unwrap_err();
        assert_eq!(error, "placeholder {in:c}: the task has no input 'c'");
        assert!(expand("{out:a}").unwrap_err().contains("no output 'a'"));
    }
}
