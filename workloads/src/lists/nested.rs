//! Scripts at places where no value can be quoted: in the script of a shell, and as an argument of
//! a program that gives it to a shell.

use crate::lists::template::{base, is_command, is_shell, script_behind, splits_a_shell};

/// Programs and builtins that give an argument to a shell.
const RUNNERS: [&str; 12] = [
    "eval", "trap", "su", "runuser", "sg", "script", "ssh", "rsh", "watch", "parallel", "screen",
    "tmux",
];
/// Programs that run a command at any place behind them.
const OUTER: [&str; 9] =
    ["exec", "command", "builtin", "doas", "xargs", "find", "ionice", "numactl", "taskset"];
/// Words of the shell before a command.
const KEYWORDS: [&str; 10] =
    ["if", "then", "elif", "else", "while", "until", "do", "time", "!", "{"];
/// Programs with an option `-c` that takes no script.
const SAFE: [&str; 60] = [
    "[",
    "[[",
    "test",
    "echo",
    "printf",
    "grep",
    "egrep",
    "fgrep",
    "zgrep",
    "rg",
    "ag",
    "ack",
    "git",
    "tar",
    "cc",
    "c++",
    "gcc",
    "g++",
    "gfortran",
    "clang",
    "clang++",
    "nvcc",
    "mpicc",
    "mpicxx",
    "wc",
    "head",
    "tail",
    "cat",
    "sort",
    "uniq",
    "cut",
    "tr",
    "cmp",
    "diff",
    "ls",
    "cp",
    "stat",
    "touch",
    "gzip",
    "bzip2",
    "xz",
    "zstd",
    "curl",
    "md5sum",
    "sha256sum",
    "samtools",
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "php",
    "R",
    "Rscript",
    "julia",
    "psql",
    "sqlite3",
    "mysql",
    "rsync",
    "vim",
];

/// True if a word is a replacement string alone.
fn is_lone(word: &str) -> bool {
    word.starts_with('{') && word.find('}') == Some(word.len() - 1)
}

/// True if a script may follow this option.
fn takes_script(option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or_default();
    let is_short = letters.len() <= 2 && letters.bytes().all(|it| it.is_ascii_alphabetic());
    matches!(option, "--command" | "--session-command") || (is_short && letters.ends_with('c'))
}

fn is_safe(word: &str) -> bool {
    SAFE.contains(&base(word))
}

/// True if `word`, with a value in it, may be the script of a shell behind these words.
pub(super) fn is_script(before: &[String], word: &str) -> bool {
    let leads = |it: &String| KEYWORDS.contains(&it.as_str()) || it.contains('=');
    let start = before.iter().position(|it| !leads(it)).unwrap_or(before.len());
    let command = &before[start..];
    let Some(first) = command.first() else { return false };
    if base(first) == "eval" {
        return command.len() > 1 || !is_lone(word);
    }
    let of_option = word.strip_prefix("--command=");
    let is_behind = of_option.is_some() || command.last().is_some_and(|it| takes_script(it));
    let text = of_option.unwrap_or(word);
    let is_outer = OUTER.contains(&base(first));
    let runs =
        |at: usize| RUNNERS.contains(&base(&command[at])) && (is_outer || is_command(command, at));
    if (0..command.len()).any(runs) {
        let is_mark = |it: char| it.is_whitespace() || ";|&<>`".contains(it);
        return text.contains(is_mark) || (is_behind && !is_lone(text));
    }
    is_behind && text.contains(char::is_whitespace) && !command.iter().any(|it| is_safe(it))
}

/// A command of a script as far as it is read.
#[derive(Debug, Default)]
struct Command {
    words: Vec<String>,
    /// The word that has begun, without its quotes.
    word: Option<String>,
    /// The quotes that are open; a dollar stands for `$'`.
    quote: Option<char>,
    is_backquoted: bool,
}

impl Command {
    fn begin(&mut self) -> &mut String {
        self.word.get_or_insert_with(String::new)
    }

    fn end(&mut self) {
        self.word = None;
        self.words.clear();
    }

    /// The rest of the word that has begun.
    fn rest<'r>(&self, behind: &'r str) -> &'r str {
        let end = match self.quote {
            Some('"') => behind.find('"'),
            Some(_) => behind.find('\''),
            None => behind.find(|it: char| it.is_whitespace() || ";&|()".contains(it)),
        };
        &behind[..end.unwrap_or(behind.len())]
    }

    /// True if the word that has begun, with a value in it, is the script of a shell.
    fn has_script(&self, rest: &str) -> bool {
        let word = format!("{}{{}}{rest}", self.word.as_deref().unwrap_or_default());
        let last = self.words.len();
        let argv = [&self.words[..], &[word]].concat();
        let is_of_shell = |at: usize| {
            is_shell(&argv[at])
                && match script_behind(&argv, at) {
                    Ok(place) => place == Some(last),
                    Err(()) => true,
                }
        };
        let has_shell =
            !self.words.first().is_some_and(|it| is_safe(it)) && (0..last).any(is_of_shell);
        has_shell || splits_a_shell(&argv) || is_script(&self.words, &argv[last])
    }
}

/// The commands that are open at the end of this part of a script, the innermost last.
fn open_commands(part: &str) -> Vec<Command> {
    let mut open = vec![Command::default()];
    let mut letters = part.chars().peekable();
    let mut previous = ' ';
    while let Some(letter) = letters.next() {
        let is_inner = open.len() > 1;
        let Some(command) = open.last_mut() else { break };
        let next = letters.peek().copied();
        match (command.quote, letter) {
            (Some('\'' | '$'), '\'') | (Some('"'), '"') => command.quote = None,
            (Some('\''), _) => command.begin().push(letter),
            (_, '\\') => {
                letters.next();
                command.begin().extend(next.filter(|&next| next != '\n'));
            }
            (_, '`') if command.is_backquoted => drop(open.pop()),
            (_, '`') => {
                command.begin();
                open.push(Command { is_backquoted: true, ..Command::default() });
            }
            (Some('"') | None, '$') if next == Some('(') => {
                letters.next();
                command.begin();
                open.push(Command::default());
            }
            (Some(_), _) => command.begin().push(letter),
            (None, '\'' | '"') => {
                command.begin();
                let is_dollar = letter == '\'' && previous == '$';
                command.quote = Some(if is_dollar { '$' } else { letter });
            }
            (None, '(') => open.push(Command::default()),
            (None, ')') if is_inner => drop(open.pop()),
            // A redirection, such as 2>&1.
            (None, '&') if "<>".contains(previous) || next == Some('>') => {
                command.begin().push(letter);
            }
            (None, ';' | '&' | '|' | '\n' | ')') => command.end(),
            (None, '#') if command.word.is_none() => {
                while letters.next().is_some_and(|next| next != '\n') {}
                command.end();
            }
            (None, blank) if blank.is_whitespace() => {
                let word = command.word.take();
                command.words.extend(word);
            }
            (None, _) => command.begin().push(letter),
        }
        previous = letter;
    }
    open
}

/// True if a value between these parts of a script is in a script of its own there: the quotes of
/// the outer one do not hold in it.
pub(super) fn is_nested(before: &str, behind: &str) -> bool {
    open_commands(before).iter().rev().enumerate().any(|(depth, command)| match depth {
        0 => command.has_script(command.rest(behind)),
        // What a substitution prints becomes a part of the word around it. Alone it is the script
        // that was asked for, such as "$(cat {})".
        _ => command.word.as_deref().is_some_and(|word| !word.is_empty()) && command.has_script(""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_nested_at(script: &str) -> bool {
        let at = script.find("{}").unwrap();
        is_nested(&script[..at], &script[at + 2..])
    }

    #[test]
    fn scripts_in_scripts_are_found() {
        for script in [
            "sh -c \"echo {}\"",
            "true; /bin/bash -lc 'echo '{}",
            "sh -c {}",
            "if true; then sh -c 'echo {}'; fi",
            "x=$(sh -c 'echo {}')",
            "(cd /; zsh -ec \"ls {}\")",
            "timeout 5 nice sh -c 'echo {}'",
            "bash 2>&1 -c \"echo {}\"",
            "find . -exec sh -c 'echo {}' \\;",
            "ls | xargs -n 1 sh -c 'echo {}'",
            "env -S \"sh -c 'echo {}'\"",
            "fish -c 'echo {}'",
            "su -c 'echo {}'",
            "sudo su - me -c \"echo {}\"",
            "script -qc 'echo {}' /dev/null",
            "ssh host 'cat {}'",
            "eval echo {}",
            "eval \"x={}\"",
            "trap 'rm {}' EXIT",
            "A=1 watch \"ls {}\"",
            "tool -lc 'echo {}'",
            "sh -c \"echo $(basename {})\"",
            "# it's\nsh -c 'echo {}'",
        ] {
            assert!(is_nested_at(script), "{script}");
        }
    }

    #[test]
    fn arguments_in_scripts_are_no_scripts() {
        for script in [
            "sh run.sh {}",
            "sh -c 'echo \"$1\"' sh {}",
            "sh -c 'true'; echo 'my {}'",
            "grep -c 'my {}' file",
            "grep sh -c {}",
            "python3 -c 'print(1)' {}",
            "python3 -c 'import m; m.run({})'",
            "psql -c 'select {} from t'",
            "flock lock ./cmd 'out {}.txt'",
            "[ -c \"a {}\" ] && exit",
            "ssh {} uptime",
            "ssh me@{} -p 22",
            "eval {}",
            "bash -c \"$(cat {})\"",
            "case a in ssh) echo 'a {}';; esac",
            "echo `sh -c date` 'my {}'",
            "grep ssh 'my {}'",
            "echo $'it\\'s' 'my {}' # sh -c",
        ] {
            assert!(!is_nested_at(script), "{script}");
        }
    }
}
