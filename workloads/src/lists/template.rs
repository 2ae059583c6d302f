//! Commands with replacement strings.
//!
//! `{}` is the entry, `{.}` the entry without its ending, `{/}` its last part as a path, `{//}` its
//! directory, `{/.}` its last part without ending. `{1}`, `{2.}` are the same of one list. `{#}`
//! and `{i}` are the number of the entry. Double braces stand for the text: `{{}}` is `{}`.
//!
//! In the script of a shell (`sh -c SCRIPT`) a value is quoted for its place, so a name with blanks
//! or quotes is one word.

use crate::lists::nested::{is_nested, is_script};
use crate::lists::quoting::{Place, Script};
use crate::lists::{Entry, ListError};

/// The part of a value that replaces a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Whole,
    WithoutEnding,
    Base,
    Directory,
    BaseWithoutEnding,
}

impl Form {
    fn of(self, value: &str) -> &str {
        match self {
            Self::Whole => value,
            Self::WithoutEnding => without_ending(value),
            Self::Base => base(value),
            Self::BaseWithoutEnding => without_ending(base(value)),
            Self::Directory => match value.trim_end_matches('/').rfind('/') {
                None if value.starts_with('/') => "/",
                None => ".",
                Some(0) => "/",
                Some(at) => value[..at].trim_end_matches('/'),
            },
        }
    }
}

/// The last part of a path.
pub(super) fn base(value: &str) -> &str {
    let trimmed = value.trim_end_matches('/');
    trimmed.rfind('/').map_or(trimmed, |at| &trimmed[at + 1..])
}

/// A path without the ending of its last part. A name that begins with its only dot has none.
fn without_ending(value: &str) -> &str {
    let start = value.rfind('/').map_or(0, |at| at + 1);
    match value[start..].rfind('.') {
        None | Some(0) => value,
        Some(at) => &value[..start + at],
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Number,
    /// The value of one list, or of all.
    Value(Option<usize>, Form),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Replaced(What, Place),
}

/// A command with its replacement strings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    arguments: Vec<Vec<Part>>,
}

/// The replacement string between two braces; `None` if it is other text.
fn what(inner: &str) -> Option<What> {
    if matches!(inner, "#" | "i") {
        return Some(What::Number);
    }
    let digits = inner.len() - inner.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let form = match &inner[digits..] {
        "" => Form::Whole,
        "." => Form::WithoutEnding,
        "/" => Form::Base,
        "//" => Form::Directory,
        "/." => Form::BaseWithoutEnding,
        _ => return None,
    };
    let source = match &inner[..digits] {
        "" => None,
        number => Some(number.parse::<usize>().ok()?.checked_sub(1)?),
    };
    Some(What::Value(source, form))
}

/// A replacement string at the beginning of `rest`: its length, and its meaning. `Err`: the length
/// of a text in double braces.
fn at_brace(rest: &str) -> Option<(usize, Result<What, String>)> {
    if let Some(inner) = rest.strip_prefix("{{")
        && let Some(close) = inner.find("}}")
        && what(&inner[..close]).is_some()
    {
        return Some((close + 4, Err(format!("{{{}}}", &inner[..close]))));
    }
    let close = rest.find('}')?;
    Some((close + 1, Ok(what(&rest[1..close])?)))
}

/// The shells with the quotes of `sh`.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
/// Shells with other quotes or options.
const OTHER_SHELLS: [&str; 4] = ["mksh", "fish", "csh", "tcsh"];
/// Programs that run the command behind them.
const PREFIXES: [&str; 8] = ["env", "nice", "timeout", "sudo", "nohup", "setsid", "stdbuf", "time"];

/// The meaning of a word of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Argument,
    /// The script of a shell with the quotes of `sh`.
    Script,
    /// The script of another shell.
    OtherScript,
    /// It may be a script.
    Unclear,
    /// It may be a script of a program that starts a shell.
    OfRunner,
}

pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&base(word)) || OTHER_SHELLS.contains(&base(word))
}

/// The place of the script behind a shell: `Ok(None)` if it has none, `Err` if it is not clear.
pub(super) fn script_behind(argv: &[String], shell: usize) -> Result<Option<usize>, ()> {
    let (mut at, mut has_script, mut is_clear) = (shell + 1, false, true);
    while let Some(word) = argv.get(at) {
        if !word.starts_with(['-', '+']) {
            break;
        }
        at += 1;
        if matches!(word.as_str(), "-" | "--") {
            break;
        }
        if word.starts_with("--") {
            at += usize::from(matches!(word.as_str(), "--rcfile" | "--init-file"));
            continue;
        }
        has_script |= word.starts_with('-') && word.contains('c');
        // An `o` at the end takes the next word; shells differ about one before the end.
        match word.find(['o', 'O']) {
            Some(place) if place + 1 == word.len() => at += 1,
            Some(_) => is_clear = false,
            None => {}
        }
    }
    match has_script && !is_clear {
        true => Err(()),
        false => Ok((has_script && at < argv.len()).then_some(at)),
    }
}

/// True if the word at `place` is the command: the first word, or behind known prefixes with their
/// options and values.
pub(super) fn is_command(argv: &[String], place: usize) -> bool {
    let is_prefix = |word: &String| PREFIXES.contains(&base(word));
    let is_of_prefix = |at: usize| {
        let word = &argv[at];
        is_prefix(word)
            || word.starts_with('-')
            || word.contains('=')
            || word.starts_with(|it: char| it.is_ascii_digit())
            || argv[at - 1].starts_with('-')
    };
    place == 0 || (is_prefix(&argv[0]) && (1..place).all(is_of_prefix))
}

/// True if `env -S` makes words of a text with a shell.
pub(super) fn splits_a_shell(argv: &[String]) -> bool {
    let Some(env) = argv.iter().position(|word| base(word) == "env") else { return false };
    let splits = |word: &String| match word.strip_prefix("--") {
        Some(long) => long.starts_with("sp"),
        None => word.starts_with('-') && word.contains('S'),
    };
    let has_shell = |word: &String| {
        word.split(|it: char| it.is_whitespace() || "-=S'\"".contains(it)).any(is_shell)
    };
    argv[env..].iter().any(splits) && argv[env..].iter().any(has_shell)
}

/// The meaning of each word of a command such as `nice sh -ec SCRIPT`.
fn words_of(argv: &[String]) -> Vec<Word> {
    if splits_a_shell(argv) {
        return vec![Word::Unclear; argv.len()];
    }
    let mut words = vec![Word::Argument; argv.len()];
    for (shell, name) in argv.iter().enumerate() {
        if !is_shell(name) || words[shell] != Word::Argument {
            continue;
        }
        match script_behind(argv, shell) {
            Ok(None) => {}
            Ok(Some(at)) => {
                words[at] = match OTHER_SHELLS.contains(&base(name)) {
                    true => Word::OtherScript,
                    false if is_command(argv, shell) => Word::Script,
                    false => Word::Unclear,
                };
            }
            Err(()) => words[shell + 1..].fill(Word::Unclear),
        }
    }
    for (at, word) in words.iter_mut().enumerate() {
        let may_have_value = *word == Word::Argument && argv[at].contains('{');
        if may_have_value && is_script(&argv[..at], &argv[at]) {
            *word = Word::OfRunner;
        }
    }
    words
}

/// The place of the value of the replacement string at `text[at..end]`.
fn place_in(
    word: Word,
    script: &Script,
    what: What,
    (text, at, end): (&str, usize, usize),
) -> Result<Place, ListError> {
    let refused = |reason: &str| {
        ListError::new(
            format!("{} is {reason} '{text}'", &text[at..end]),
            "give the script an argument: sh -c '... \"$1\" ...' sh {}",
        )
    };
    match word {
        Word::Argument => Ok(Place::Argument),
        // No shell reads a number as something else.
        Word::OfRunner if what == What::Number => Ok(Place::Argument),
        Word::Script => {
            let place = script.place();
            let place = place.map_err(|place| refused(&format!("{place} in the script")))?;
            match what != What::Number && is_nested(&text[..at], &text[end..]) {
                true => Err(refused("in a script that may be of another shell, in the script")),
                false => Ok(place),
            }
        }
        Word::OtherScript => Err(refused("in the script of a shell with other quotes than sh:")),
        Word::Unclear | Word::OfRunner => {
            Err(refused("in a word that may be the script of a shell:"))
        }
    }
}

/// True if a command has a replacement string.
#[must_use]
pub fn has_replacement(argv: &[String]) -> bool {
    let parts = |(text, word): (&String, Word)| parse(text, word);
    argv.iter().zip(words_of(argv)).map(parts).any(|parts| match parts {
        Ok(parts) => parts.iter().any(|part| matches!(part, Part::Replaced(..))),
        Err(_) => true,
    })
}

fn parse(text: &str, word: Word) -> Result<Vec<Part>, ListError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut script = Script::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let in_script = !matches!(word, Word::Argument | Word::OfRunner);
        let of_shell = in_script && script.is_after_dollar();
        let found = (letter == '{' && !of_shell).then(|| at_brace(rest)).flatten();
        let taken = match found {
            Some((length, Ok(what))) => {
                let at = text.len() - rest.len();
                let place = place_in(word, &script, what, (text, at, at + length))?;
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Replaced(what, place));
                script.value();
                length
            }
            Some((length, Err(inner))) => {
                literal.push_str(&inner);
                script.value();
                length
            }
            None => {
                let length = letter.len_utf8();
                script.letter(letter, &rest[length..]);
                literal.push(letter);
                length
            }
        };
        rest = &rest[taken..];
    }
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

impl Template {
    /// Reads a command for entries of `sources` lists. Without a replacement string, and with a
    /// list, the entry follows the command.
    ///
    /// # Errors
    /// A replacement string names a list that does not exist, or is at a place in a script where
    /// no value can be.
    pub fn parse(argv: &[String], sources: usize) -> Result<Self, ListError> {
        let parts = |(text, word): (&String, Word)| parse(text, word);
        let mut arguments: Vec<Vec<Part>> =
            argv.iter().zip(words_of(argv)).map(parts).collect::<Result<_, _>>()?;
        let mut replaced = arguments.iter().flatten().filter_map(|part| match part {
            Part::Replaced(what, _) => Some(what),
            Part::Text(_) => None,
        });
        let beyond = replaced.clone().find_map(|what| match what {
            What::Value(Some(source), _) if *source >= sources => Some(source + 1),
            _ => None,
        });
        if let Some(number) = beyond {
            let lists = match sources {
                1 => "there is one list".to_owned(),
                sources => format!("there are {sources} lists"),
            };
            return Err(ListError::new(
                format!("{{{number}}}: {lists}"),
                format!("write {{{{{number}}}}} for the text {{{number}}}"),
            ));
        }
        if replaced.next().is_none() && sources > 0 {
            let all = What::Value(None, Form::Whole);
            arguments.push(vec![Part::Replaced(all, Place::Argument)]);
        }
        Ok(Self { arguments })
    }

    /// The command of an entry.
    #[must_use]
    pub fn argv(&self, entry: &Entry) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            // An argument that is only `{}` is one argument for each list.
            if let [Part::Replaced(What::Value(None, form), Place::Argument)] = argument[..] {
                argv.extend(entry.values.iter().map(|value| form.of(value).to_owned()));
                continue;
            }
            let mut text = String::new();
            argument.iter().for_each(|part| put(part, entry, &mut text));
            argv.push(text);
        }
        argv
    }
}

fn put(part: &Part, entry: &Entry, text: &mut String) {
    match part {
        Part::Text(literal) => text.push_str(literal),
        Part::Replaced(What::Number, _) => text.push_str(&entry.number.to_string()),
        Part::Replaced(What::Value(Some(source), form), place) => {
            let value = entry.values.get(*source).map_or("", String::as_str);
            place.put(form.of(value), text);
        }
        Part::Replaced(What::Value(None, form), place) => {
            for (at, value) in entry.values.iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                place.put(form.of(value), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn argv(template: &[&str], values: &[&str]) -> Vec<String> {
        let template = Template::parse(&words(template), values.len()).unwrap();
        template.argv(&Entry { number: 7, values: words(values) })
    }

    fn refused(template: &[&str], sources: usize) -> ListError {
        Template::parse(&words(template), sources).unwrap_err()
    }

    #[test]
    fn strings_are_replaced() {
        let path = "/a b/c.tar.gz";
        let template = ["x", "{}", "{.}", "{/}", "{//}", "{/.}", "{#}-{i}", "{1/.}!"];
        let expected = ["x", path, "/a b/c.tar", "c.tar.gz", "/a b", "c.tar", "7-7", "c.tar!"];
        assert_eq!(argv(&template, &[path]), expected);
        assert_eq!(argv(&["echo"], &["a b"]), ["echo", "a b"]);
        assert_eq!(argv(&["echo", "{2}{1}"], &["a", "b"]), ["echo", "ba"]);
        assert_eq!(argv(&["echo", "{}", "-{}"], &["a", "b"]), ["echo", "a", "b", "-a b"]);
        for (value, [whole, base, directory]) in [
            (".rc", [".rc", ".rc", "."]),
            ("/x", ["/x", "x", "/"]),
            ("d.e/x", ["d.e/x", "x", "d.e"]),
            ("d/", ["d/", "d", "."]),
            ("/", ["/", "", "/"]),
            ("", ["", "", "."]),
        ] {
            assert_eq!(argv(&["x", "{.}", "{/}", "{//}"], &[value])[1..], [whole, base, directory]);
        }
    }

    #[test]
    fn other_braces_stay() {
        let template = ["awk", "{print $1}", "{{}}", "{{1}}", "{a}", "{", "{0}", "{}"];
        let expected = ["awk", "{print $1}", "{}", "{1}", "{a}", "{", "{0}", "v{}"];
        assert_eq!(argv(&template, &["v{}"]), expected);
        assert!(!has_replacement(&words(&["awk", "{print}", "{{}}"])));
        assert!(has_replacement(&words(&["x", "-{#}"])));
        assert!(!has_replacement(&words(&["sh", "-c", "echo ${1} ${#}"])));
    }

    #[test]
    fn a_list_that_does_not_exist_is_named() {
        let error = refused(&["grep", "a{2}", "{}"], 1);
        assert_eq!(error.text, "{2}: there is one list");
        assert_eq!(error.hint, "write {{2}} for the text {2}");
        assert_eq!(refused(&["x", "{1}"], 0).text, "{1}: there are 0 lists");
    }

    /// Hostile names reach the program as they are, from any quotes of a script.
    #[test]
    fn values_in_scripts_are_words() {
        let hostile = "a  b'\"$(touch x)`id`;#\\\n&";
        for script in [
            "printf '%s|' {}",
            "printf '%s|' \"{}\"",
            "printf '%s|' '{}'",
            "printf '%s|' \"$(printf '%s' '{}')\"",
            "# don't\nprintf '%s|' {}",
            "case a in a) printf '%s|' {};; esac",
            "printf '%s|' \\\\{}",
            "printf '%s|' \"${x:-}\"'{}'",
            "printf '%s|' $((1 << 2)) >/dev/null; printf '%s|' {}",
        ] {
            let argv = argv(&["nice", "/bin/sh", "-uec", script], &[hostile]);
            let ran = std::process::Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            let text = text.strip_prefix('\\').unwrap_or(&text);
            assert_eq!(text, format!("{hostile}|"), "{script}");
        }
        assert_eq!(argv(&["sh", "-c", "echo ${1} {}", "x"], &["a b"])[2], "echo ${1} 'a b'");
        assert_eq!(argv(&["sh", "x.sh", "{}"], &["a b"]), ["sh", "x.sh", "a b"]);
    }

    /// Options with a value do not hide the script.
    #[test]
    fn the_script_is_found_behind_options() {
        let hostile = "a;echo INJ'\n";
        let script = "printf '%s|' {}";
        for shell in [
            &["bash", "-euo", "pipefail", "-c"][..],
            &["bash", "-c", "-O", "extglob", "--"],
            &["bash", "--rcfile", "/dev/null", "+o", "posix", "-c"],
            &["env", "A=1", "timeout", "-k", "5", "10s", "nice", "-n", "1", "sh", "-c"],
        ] {
            let command = argv(&[shell, &[script]].concat(), &[hostile]);
            let ran = std::process::Command::new(&command[0]).args(&command[1..]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{hostile}|"), "{shell:?}");
        }
        for command in [
            &["env", "-S", "bash -c", "echo {}"][..],
            &["env", "-Sbash -c", "echo {}"],
            &["ssh", "host", "sh", "-c", "echo {}"],
            &["sh", "-c", "\"$@\"", "sh", "bash", "-c", "echo {}"],
            &["bash", "-oc", "pipefail", "echo {}"],
            &["fish", "-c", "echo {}"],
            &["nice", "tcsh", "-c", "echo {}"],
            &["bash", "-c", "sh -c \"echo {}\""],
            &["bash", "-c", "true; su -c 'echo {}'"],
            &["su", "-c", "echo {}"],
            &["sudo", "su", "me", "-c", "echo {}"],
            &["su", "--command=echo {}"],
            &["script", "-qc", "echo {}", "/dev/null"],
            &["ssh", "host", "cat {}"],
            &["watch", "ls {}"],
            &["tool", "-lc", "echo {}"],
        ] {
            assert!(refused(command, 1).hint.contains("\"$1\""), "{command:?}");
        }
        let command = ["xargs", "sh", "-c", "echo \"$1\"", "sh", "{}"];
        assert_eq!(argv(&command, &["a b"])[5], "a b");
    }

    #[test]
    fn arguments_behind_c_that_are_no_scripts_stay() {
        let cases: [(&[&str], &str); 6] = [
            (&["grep", "-c", "{}", "f"], "grep -c 'a b' f"),
            (&["nice", "grep", "-c", "my {}", "f"], "nice grep -c 'my a b' f"),
            (&["python3", "-c", "print(1)", "{}"], "python3 -c 'print(1)' 'a b'"),
            (&["ssh", "{}", "uptime"], "ssh 'a b' uptime"),
            (&["sh", "-c", "sh -c 'echo {#}'; grep -c {} f"], ""),
            (&["su", "-c", "echo {#}"], "su -c 'echo 7'"),
        ];
        for (command, expected) in cases {
            let line = crate::lists::command_line(&argv(command, &["a b"]));
            assert!(expected.is_empty() || line == expected, "{line}");
        }
    }

    #[test]
    fn places_without_a_quoting_are_refused() {
        for (script, place) in [
            ("x `echo {}`", "between backquotes"),
            ("cat <<E\n{}\nE", "in or after a here-document"),
            ("echo $'{}'", "between $' and '"),
            ("echo \\{}", "after a backslash"),
            ("cat <<$x\n{}", "in or after a here-document"),
            ("cat << \\E\n{}", "in or after a here-document"),
            ("cat <<1\n{}\n1", "in or after a here-document"),
            ("echo \"${x:-{}}\"", "in ${...}"),
            ("echo ${x:-'{}'}", "in ${...}"),
            ("echo \"${x:-'}\" {}", "after quotes in ${...}"),
            ("echo \"$(case a in a) echo '{}';; esac)\"", "in or after 'case' in parentheses"),
            ("true # {}", "in a comment"),
        ] {
            let error = refused(&["sh", "-c", script], 1);
            assert!(error.text.contains(place), "{error}");
            assert!(error.hint.contains("\"$1\""), "{}", error.hint);
        }
        assert_eq!(argv(&["sh", "-c", "cat <<<{}"], &["a b"])[2], "cat <<<'a b'");
        assert_eq!(argv(&["sh", "-c", "echo $((1 << 2)){}"], &["b"])[2], "echo $((1 << 2))b");
    }
}
