//! Values in shell scripts, and commands as one line for people.

/// The place of a value in a shell script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// An argument of a program: the value as it is.
    Argument,
    /// In a script, outside of quotes.
    Plain,
    /// Between single quotes.
    Single,
    /// Between double quotes.
    Double,
}

impl Place {
    /// The text that stands for `value` in this place.
    pub(crate) fn put(self, value: &str, out: &mut String) {
        match self {
            Self::Argument => out.push_str(value),
            Self::Plain if is_plain(value) => out.push_str(value),
            Self::Plain => {
                out.push('\'');
                Self::Single.put(value, out);
                out.push('\'');
            }
            Self::Single => out.push_str(&value.replace('\'', r"'\''")),
            Self::Double => {
                for letter in value.chars() {
                    if matches!(letter, '\\' | '"' | '$' | '`') {
                        out.push('\\');
                    }
                    out.push(letter);
                }
            }
        }
    }
}

/// True if a shell reads this word as it is.
fn is_plain(word: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    !word.is_empty() && word.bytes().all(is_safe)
}

/// A command as one line that a shell would read as this command.
#[must_use]
pub fn command_line(argv: &[String]) -> String {
    let mut line = String::new();
    for (at, word) in argv.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        if !word.chars().any(char::is_control) {
            Place::Plain.put(word, &mut line);
            continue;
        }
        line.push_str("$'");
        for letter in word.chars() {
            match letter {
                '\'' | '\\' => line.extend(['\\', letter]),
                '\n' => line.push_str(r"\n"),
                '\t' => line.push_str(r"\t"),
                letter if letter.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in letter.encode_utf8(&mut bytes).bytes() {
                        line.push_str(&format!(r"\{byte:03o}"));
                    }
                }
                letter => line.push(letter),
            }
        }
        line.push('\'');
    }
    line
}

/// The reason why no value can be put at a place.
pub(crate) const IN_BACKTICKS: &str = "between backquotes";
pub(crate) const IN_DOCUMENT: &str = "in or after a here-document";
pub(crate) const IN_DOLLAR_QUOTES: &str = "between $' and '";
pub(crate) const AFTER_BACKSLASH: &str = "after a backslash";
pub(crate) const IN_COMMENT: &str = "in a comment";
pub(crate) const IN_PARAMETER: &str = "in ${...}";
pub(crate) const AFTER_PARAMETER: &str = "after quotes in ${...}";
pub(crate) const IN_CASE: &str = "in or after 'case' in parentheses";
pub(crate) const AFTER_SHARP: &str = "after a # in ((";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Context {
    Plain,
    Single,
    Double,
    DollarSingle,
    /// Between `${` and `}`.
    Parameter,
    /// Behind `((`, which may also be two parentheses of commands.
    Arithmetic,
}

/// Reads a script letter by letter, and knows the quotes at each place.
#[derive(Debug)]
pub(crate) struct Script {
    contexts: Vec<Context>,
    previous: Option<char>,
    is_escaped: bool,
    in_comment: bool,
    in_backticks: bool,
    /// The reason why no value can follow: the places behind are not clear.
    unclear: Option<&'static str>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            contexts: vec![Context::Plain],
            previous: None,
            is_escaped: false,
            in_comment: false,
            in_backticks: false,
            unclear: None,
        }
    }

    fn context(&self) -> Context {
        self.contexts.last().copied().unwrap_or(Context::Plain)
    }

    /// True if a brace here belongs to the shell: `${1}`.
    pub(crate) fn is_after_dollar(&self) -> bool {
        let is_quoted = self.context() == Context::Single || self.is_escaped || self.in_comment;
        self.previous == Some('$') && !is_quoted
    }

    /// The place of a value here.
    pub(crate) fn place(&self) -> Result<Place, &'static str> {
        if self.in_backticks {
            return Err(IN_BACKTICKS);
        }
        if let Some(reason) = self.unclear {
            return Err(reason);
        }
        if self.in_comment {
            return Err(IN_COMMENT);
        }
        if self.contexts.contains(&Context::Parameter) {
            return Err(IN_PARAMETER);
        }
        match self.context() {
            _ if self.is_escaped => Err(AFTER_BACKSLASH),
            Context::Plain | Context::Arithmetic => Ok(Place::Plain),
            Context::Single => Ok(Place::Single),
            Context::Double => Ok(Place::Double),
            Context::DollarSingle => Err(IN_DOLLAR_QUOTES),
            Context::Parameter => Err(IN_PARAMETER),
        }
    }

    /// A value follows the text before.
    pub(crate) fn value(&mut self) {
        self.previous = Some('x');
        self.is_escaped = false;
    }

    /// The next letter of the script, and the text after it.
    pub(crate) fn letter(&mut self, letter: char, rest: &str) {
        let previous = self.previous.replace(letter);
        if self.in_comment {
            self.in_comment = letter != '\n';
            return;
        }
        if std::mem::take(&mut self.is_escaped) {
            // An escaped dollar begins nothing.
            self.previous = Some('x');
            return;
        }
        let is_after_dollar = previous == Some('$');
        match (self.context(), letter) {
            (Context::Single | Context::DollarSingle, '\'')
            | (Context::Double, '"')
            | (Context::Parameter, '}') => {
                self.contexts.pop();
            }
            (Context::Single, _) => {}
            (_, '\\') => self.is_escaped = true,
            (Context::DollarSingle, _) => {}
            (_, '`') => self.in_backticks = !self.in_backticks,
            // `$$` is a number; it begins nothing.
            (_, '$') if is_after_dollar => self.previous = Some('x'),
            (_, '{') if is_after_dollar => self.contexts.push(Context::Parameter),
            (Context::Double | Context::Parameter, '(') if is_after_dollar => {
                self.contexts.push(Context::Plain);
            }
            (Context::Double, _) => {}
            // Shells differ about quotes in "${...}".
            (Context::Parameter, '\'' | '"') if self.contexts.contains(&Context::Double) => {
                self.set_unclear(AFTER_PARAMETER);
            }
            (_, '\'') if is_after_dollar => self.contexts.push(Context::DollarSingle),
            (_, '\'') => self.contexts.push(Context::Single),
            (_, '"') => self.contexts.push(Context::Double),
            (Context::Parameter, _) => {}
            (context, letter) => self.command(context, letter, previous, rest),
        }
    }

    /// The next letter outside of quotes.
    fn command(&mut self, context: Context, letter: char, previous: Option<char>, rest: &str) {
        let begins = previous.is_none_or(|it| it.is_whitespace() || ";&|(".contains(it));
        match letter {
            '(' if previous == Some('(') || context == Context::Arithmetic => {
                self.contexts.push(Context::Arithmetic);
            }
            '(' => self.contexts.push(Context::Plain),
            ')' if self.contexts.len() > 1 => {
                self.contexts.pop();
            }
            '#' if begins && context == Context::Arithmetic => self.set_unclear(AFTER_SHARP),
            '#' => self.in_comment = begins,
            // The parentheses of its patterns have no beginning.
            'c' if self.contexts.len() > 1 && !previous.is_some_and(char::is_alphanumeric) => {
                let is_case = rest.strip_prefix("ase").is_some_and(|rest| {
                    !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_')
                });
                if is_case {
                    self.set_unclear(IN_CASE);
                }
            }
            '<' if previous == Some('<') => {
                let word = rest.trim_start_matches('-').trim_start();
                let begins = |it: char| it.is_alphabetic() || "_'\"\\".contains(it);
                match context {
                    // The text behind `<<<` is a word.
                    _ if rest.starts_with('<') => self.previous = Some('x'),
                    Context::Arithmetic if !word.starts_with(begins) => {}
                    _ => self.set_unclear(IN_DOCUMENT),
                }
            }
            _ => {}
        }
    }

    fn set_unclear(&mut self, reason: &'static str) {
        self.unclear = self.unclear.or(Some(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(place: Place, value: &str) -> String {
        let mut out = String::new();
        place.put(value, &mut out);
        out
    }

    #[test]
    fn values_keep_their_letters_in_any_quotes() {
        let value = "it's $HOME \"`x`\\\n";
        for (place, before, after) in
            [(Place::Plain, "", ""), (Place::Single, "'", "'"), (Place::Double, "\"", "\"")]
        {
            let script = format!("printf %s {before}{}{after}", put(place, value));
            let ran = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&ran.stdout), value, "{script}");
        }
        assert_eq!(put(Place::Plain, "a/b-1.txt"), "a/b-1.txt");
        assert_eq!(put(Place::Plain, ""), "''");
    }

    #[test]
    fn a_command_is_one_line_that_a_shell_reads_back() {
        let argv = ["printf", "%s|", "a b", "it's", "", "x\ny\t\\'\u{1}é", "plain"];
        let argv = argv.map(str::to_owned);
        let line = command_line(&argv);
        assert!(!line.contains(['\n', '\t']), "{line}");
        let ran = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
        let expected: String = argv[2..].iter().map(|word| format!("{word}|")).collect();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{line}");
    }
}
