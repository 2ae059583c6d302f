//! Directories that differ from node to node: `{rank}`, `{host}` and `$VAR` in the user's text are
//! replaced where the node runs.

use std::path::{Path, PathBuf};

use crate::errors::Failure;

/// The reason why an instance directory cannot contain the place of a node.
pub const ALL_SHARE: &str = "all nodes share the directory";

/// The values of placeholders in one flag.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'f> {
    /// The name of the flag.
    pub flag: &'f str,
    /// This node's place; or the reason why there is none.
    pub rank: Result<u32, &'f str>,
}

/// The directory of a text. `$$`, `{{` and `}}` stand for a single `$`, `{` and `}`.
pub fn expand(text: &Path, scope: Scope<'_>) -> Result<PathBuf, Failure> {
    expand_with(text, scope, |name| std::env::var(name).ok())
}

/// As [`expand`], with the variables of another process.
pub fn expand_with(
    text: &Path,
    scope: Scope<'_>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, Failure> {
    let Some(plain) = text.to_str() else { return Ok(text.to_owned()) };
    expand_text(plain, scope, env).map(PathBuf::from)
}

/// The text that [`expand`] turns into this directory.
pub fn escape(dir: &Path) -> PathBuf {
    let Some(plain) = dir.to_str() else { return dir.to_owned() };
    plain.replace('$', "$$").replace('{', "{{").replace('}', "}}").into()
}

fn expand_text(
    text: &str,
    scope: Scope<'_>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<String, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", scope.flag));
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['$', '{', '}']) {
        out.push_str(&rest[..at]);
        let mark = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(mark) {
            out.push_str(mark);
            rest = after;
            continue;
        }
        match mark {
            "$" => {
                let (name, after) = variable(rest);
                if name.is_empty() {
                    let failure = wrong(format!("'{text}' has a $ without a name behind it"));
                    return Err(failure.hint("write $$ for a dollar sign"));
                }
                let value = env(name).filter(|value| !value.is_empty());
                out.push_str(&value.ok_or_else(|| {
                    wrong(format!("${name} is not set where the node runs"))
                        .hint("set it, or write $$ for a dollar sign")
                })?);
                rest = after;
            }
            "{" => {
                let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
                out.push_str(&placeholder(name, scope)?);
                rest = after;
            }
            _ => {
                let failure = wrong(format!("'{text}' closes a brace that it does not open"));
                return Err(failure.hint("write }} for a brace"));
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn placeholder(name: &str, scope: Scope<'_>) -> Result<String, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", scope.flag));
    match name {
        "rank" => match scope.rank {
            Ok(rank) => Ok(rank.to_string()),
            Err(why) => Err(wrong(format!("{{rank}} cannot be used here: {why}"))
                .hint("{host} is the name of the machine")),
        },
        "host" => match client::host_name() {
            host if host.is_empty() => Err(wrong("this machine has no name".to_owned())),
            host => Ok(host),
        },
        other => Err(wrong(format!("'{{{other}}}' is unknown"))
            .hint("{rank}, {host} and $VAR are known; write {{ for a brace")),
    }
}

/// `NAME` or `{NAME}` behind a dollar sign, and the text after it.
fn variable(text: &str) -> (&str, &str) {
    if let Some((name, after)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (name, after);
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str, rank: Result<u32, &str>) -> Result<String, String> {
        let scope = Scope { flag: "--state-dir", rank };
        let env = |name: &str| match name {
            "SCRATCH" => Some("/scratch/me".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand_text(text, scope, env).map_err(|failure| failure.message)
    }

    #[test]
    fn what_differs_from_node_to_node_is_replaced() {
        assert_eq!(expanded("/tmp/plain", Ok(3)).unwrap(), "/tmp/plain");
        assert_eq!(expanded("$SCRATCH/st-{rank}/x", Ok(3)).unwrap(), "/scratch/me/st-3/x");
        assert_eq!(expanded("${SCRATCH}x/$SCRATCH", Ok(3)).unwrap(), "/scratch/mex//scratch/me");
        let host = client::host_name();
        assert_eq!(expanded("/tmp/{host}-{rank}", Ok(0)).unwrap(), format!("/tmp/{host}-0"));
        assert_eq!(expanded("/a$$b/{{x}}", Ok(0)).unwrap(), "/a$b/{x}");
        let odd = "/a$b/{rank}/$$/}}{{x";
        let escaped = escape(Path::new(odd));
        assert_eq!(expanded(escaped.to_str().unwrap(), Ok(0)).unwrap(), odd);
    }

    #[test]
    fn an_unknown_placeholder_is_an_error() {
        let wrong = |text| expanded(text, Err("the cluster gives the number later")).unwrap_err();
        assert_eq!(wrong("/tmp/{node}"), "--state-dir: '{node}' is unknown");
        assert!(wrong("/tmp/{rank").contains("later") && wrong("/tmp/{rank}").contains("later"));
        for unset in ["$NOWHERE/x", "${NOWHERE}/x", "$EMPTY/x"] {
            assert!(wrong(unset).contains("is not set where the node runs"), "{unset}");
        }
        assert!(wrong("/a/$/b").contains("without a name"));
        assert!(wrong("/a}b").contains("does not open"));
    }
}
