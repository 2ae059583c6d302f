//! What completion scripts have beside verbs and flags: they ask the program for values.

use clap_complete::Shell;

const BASH: &str = include_str!("values.bash");
const ZSH: &str = include_str!("values.zsh");
const FISH: &str = include_str!("values.fish");

/// The last part of the script for zsh, which calls or registers its function.
const ZSH_CALL: &str = "if [ \"$funcstack[1]\" = \"_starling\" ]; then";

/// Adds the question for values to a script.
pub(crate) fn with_values(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{BASH}"),
        Shell::Fish => format!("{script}\n{FISH}"),
        Shell::Zsh => match script.split_once(ZSH_CALL) {
            Some((functions, call)) => {
                let functions = functions.replacen("\n_starling() {", "\n_starling_words() {", 1);
                format!("{functions}{ZSH}\n{ZSH_CALL}{call}")
            }
            None => script.to_owned(),
        },
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "starling", &mut script);
        with_values(shell, &String::from_utf8(script).unwrap())
    }

    #[test]
    fn scripts_ask_for_values_and_keep_words() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("complete --") && script.contains("workload"), "{shell}");
        }
        let zsh = script(Shell::Zsh);
        let count = |text: &str| zsh.matches(text).count();
        assert_eq!((count("\n_starling() {"), count("\n_starling_words() {")), (1, 1));
        assert!(zsh.find("\n_starling() {") < zsh.find(ZSH_CALL));
        assert!(zsh.starts_with("#compdef starling"));
    }
}
