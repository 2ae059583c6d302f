/*!
Placeholders of arguments, environment values, the working directory and the standard streams.
File names have only `{i}`: see [`proto::entry`].

`{i}` is the entry of a task of an array (`{i:04}` has at least four digits). `{job}` and `{task}`
are its ids. `{in:NAME}` is the path of the input with that name, and `{out:NAME}` the path for the
output with that name. If several inputs share a name, `{in:NAME}` is their paths separated by
spaces. An argument that is only `{in:NAME}` becomes one argument for each path.

Double braces stand for the text: `{{in:NAME}}` is `{in:NAME}`. Any other brace stays as it is,
because shell, awk and Python programs are full of them. So does `{i}` in a task that is in no
array.

```
use executor::expand::Scope;
let scope = Scope { entry: Some(3), job: "7", task: "0.3", inputs: &[], outputs: &[], empty: &[] };
assert_eq!(scope.expand("awk '{print $1}' part-{i}").as_deref(), Ok("awk '{print $1}' part-3"));
```
*/

use proto::entry;

/// A file and its name in the task's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub key: String,
    pub path: String,
}

/// The values of placeholders.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The entry of a task of an array.
    pub entry: Option<u64>,
    pub job: &'a str,
    pub task: &'a str,
    pub inputs: &'a [Named],
    pub outputs: &'a [Named],
    /// The names of declared inputs without a file: patterns that matched none.
    pub empty: &'a [String],
}

impl Scope<'_> {
    /// Replaces the placeholders of `text`.
    ///
    /// # Errors
    /// A placeholder names an input or output that the task does not have.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        self.expand_beside(text, self)
    }

    /// As [`Scope::expand`]. A placeholder that does not follow a quotation mark gets its value
    /// from `unquoted`.
    fn expand_beside(&self, text: &str, unquoted: &Scope<'_>) -> Result<String, String> {
        if !text.contains('{') {
            return Ok(text.to_owned());
        }
        let is_placeholder = |name: &str| entry::is_in_command(name, self.entry.is_some());
        entry::replace(text, is_placeholder, |name, before| {
            let is_quoted = before.ends_with(['"', '\'']);
            if is_quoted { self.value(name) } else { unquoted.value(name) }
        })
    }

    /// As [`Scope::arguments`]. Within a longer argument, which may be a script for a shell, files
    /// without quotation marks are named as in `unquoted`.
    ///
    /// # Errors
    /// As [`Scope::expand`].
    pub fn arguments_beside(
        &self,
        text: &str,
        unquoted: &Scope<'_>,
    ) -> Result<Vec<String>, String> {
        match is_one_placeholder(text) {
            true => self.arguments(text),
            false => self.expand_beside(text, unquoted).map(|one| vec![one]),
        }
    }

    /// The arguments that one argument of the command becomes.
    ///
    /// # Errors
    /// As [`Scope::expand`].
    pub fn arguments(&self, text: &str) -> Result<Vec<String>, String> {
        let key = text.strip_prefix("{in:").and_then(|rest| rest.strip_suffix('}'));
        match key.filter(|key| !key.contains(['{', '}'])) {
            Some(key) => {
                let paths = paths_of(self.inputs, key).map(str::to_owned).collect::<Vec<_>>();
                match paths.is_empty() && !self.is_empty_input(key) {
                    true => Err(unknown(text, "input", key)),
                    false => Ok(paths),
                }
            }
            None => self.expand(text).map(|one| vec![one]),
        }
    }

    fn is_empty_input(&self, key: &str) -> bool {
        self.empty.iter().any(|empty| empty == key)
    }

    /// The value of `{name}`; `None` if it is no placeholder.
    fn value(&self, name: &str) -> Result<Option<String>, String> {
        let (files, key, kind) = if let Some(key) = name.strip_prefix("in:") {
            (self.inputs, key, "input")
        } else if let Some(key) = name.strip_prefix("out:") {
            (self.outputs, key, "output")
        } else {
            return Ok(match name {
                "job" => Some(self.job.to_owned()),
                "task" => Some(self.task.to_owned()),
                _ => self.entry.zip(entry::width(name)).map(|(of, width)| entry::text(of, width)),
            });
        };
        let paths = paths_of(files, key).collect::<Vec<_>>().join(" ");
        if paths.is_empty() && (kind == "output" || !self.is_empty_input(key)) {
            return Err(unknown(&format!("{{{name}}}"), kind, key));
        }
        Ok(Some(paths))
    }
}

/// True for `{in:NAME}` and `{out:NAME}`.
fn is_one_placeholder(text: &str) -> bool {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['{', '}']))
}

/// True if a shell takes this path, without quotation marks, as one word and as itself.
#[must_use]
pub fn is_one_word(path: &str) -> bool {
    let breaks = |c: char| c.is_whitespace() || "\"'\\$`&;|<>()*?[]{}#!~".contains(c);
    !path.contains(breaks)
}

/// These files by paths relative to a directory, for a command that starts there. Others keep
/// their paths.
#[must_use]
pub fn relative(files: &[Named], directory: &str) -> Vec<Named> {
    let relative = |file: &Named| {
        let inside = file.path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
        let path = inside.map_or_else(|| file.path.clone(), |inside| format!("./{inside}"));
        Named { key: file.key.clone(), path }
    };
    files.iter().map(relative).collect()
}

fn unknown(placeholder: &str, kind: &str, key: &str) -> String {
    format!("placeholder {placeholder}: the task has no {kind} '{key}'")
}

/// The paths of all files of that name.
fn paths_of<'f>(files: &'f [Named], key: &str) -> impl Iterator<Item = &'f str> {
    files.iter().filter(move |file| file.key == key).map(|file| file.path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let named = |key: &str, path: &str| Named { key: key.into(), path: path.into() };
        let inputs = [named("a", "/t/x"), named("b", "/t/y"), named("a", "/t/{i}")];
        let outputs = [named("o", "/t/out")];
        let scope = Scope {
            entry: Some(12),
            job: "7",
            task: "3.4",
            inputs: &inputs,
            outputs: &outputs,
            empty: &[],
        };
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
        assert_eq!(expand("{a{i}").unwrap(), "{a12");
        assert_eq!(expand("{{{i}}}").unwrap(), "{{i}}");
    }

    #[test]
    fn double_braces_stand_for_the_text() {
        let text = "{{i}} {{i:03}} {{job}} {{task}} {{in:a}} {{out:zz}} {i:03}";
        assert_eq!(expand(text).unwrap(), "{i} {i:03} {job} {task} {in:a} {out:zz} 012");
    }

    #[test]
    fn a_task_of_no_array_has_no_entry() {
        let scope =
            Scope { entry: None, job: "7", task: "3.4", inputs: &[], outputs: &[], empty: &[] };
        let text = "print(f'{i} {i:03} {{i}} {job}')";
        assert_eq!(scope.expand(text).unwrap(), "print(f'{i} {i:03} {{i}} 7')");
    }

    #[test]
    fn an_argument_of_inputs_alone_is_one_for_each() {
        let named = |key: &str, path: &str| Named { key: key.into(), path: path.into() };
        let inputs = [named("a", "/t/x 1"), named("b", "/t/y"), named("a", "/t/z")];
        let scope =
            Scope { entry: None, job: "7", task: "3.4", inputs: &inputs, outputs: &[], empty: &[] };
        assert_eq!(scope.arguments("{in:a}").unwrap(), ["/t/x 1", "/t/z"]);
        assert_eq!(scope.arguments("-i {in:a}").unwrap(), ["-i /t/x 1 /t/z"]);
        assert_eq!(scope.arguments("{in:a}{in:b}").unwrap(), ["/t/x 1 /t/z/t/y"]);
        assert_eq!(scope.arguments("{{in:a}}").unwrap(), ["{in:a}"]);
        assert!(scope.arguments("{in:c}").unwrap_err().contains("no input 'c'"));
        let scope = Scope { empty: &["c".to_owned()], ..scope };
        assert_eq!(scope.arguments("{in:c}").unwrap(), [""; 0]);
        assert_eq!(scope.arguments("-i '{in:c}'").unwrap(), ["-i ''"]);
        assert!(scope.arguments("{out:c}").unwrap_err().contains("no output 'c'"));
    }

    #[test]
    fn a_script_names_files_by_words_even_if_their_directory_is_none() {
        let directory = "/my cluster/t";
        let named = |key: &str, path: &str| Named { key: key.into(), path: path.into() };
        let inputs = [named("a", "/my cluster/t/x"), named("b", "/data/y")];
        let outputs = [named("o", "/my cluster/t/sub/out")];
        let scope = Scope {
            entry: None,
            job: "7",
            task: "3.4",
            inputs: &inputs,
            outputs: &outputs,
            empty: &[],
        };
        assert!(!is_one_word(directory) && is_one_word("/data/y-1.txt"));
        let (near_in, near_out) = (relative(&inputs, directory), relative(&outputs, directory));
        let near = Scope { inputs: &near_in, outputs: &near_out, ..scope };
        let arguments = |text: &str| scope.arguments_beside(text, &near).unwrap().join("|");
        assert_eq!(arguments("cat {in:a} {in:b} > {out:o}"), "cat ./x /data/y > ./sub/out");
        assert_eq!(arguments("cat \"{in:a}\""), "cat \"/my cluster/t/x\"");
        assert_eq!(arguments("{in:a}"), "/my cluster/t/x");
        assert_eq!(arguments("{out:o}"), "/my cluster/t/sub/out");
    }

    #[test]
    fn unknown_files_are_named() {
        let error = expand("x {in:c}").unwrap_err();
        assert_eq!(error, "placeholder {in:c}: the task has no input 'c'");
        assert!(expand("{out:a}").unwrap_err().contains("no output 'a'"));
    }
}
