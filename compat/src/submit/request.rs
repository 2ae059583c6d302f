//! The resources of a submission: for Starling, and as HyperQueue shows them.

use client::Needs;
use verb::errors::Failure;

use crate::args::SubmitArgs;

pub(crate) struct Wanted {
    pub(crate) needs: Needs,
    /// Names and amounts with their policies.
    pub(crate) texts: Vec<(String, String)>,
}

impl Wanted {
    pub(crate) fn of(args: &SubmitArgs) -> Result<Self, Failure> {
        let mut texts = vec![("cpus".to_owned(), amount(args.cpus.as_deref().unwrap_or("1"))?)];
        let mut needs = Needs { cpus: plain(&texts[0].1), ..Needs::default() };
        for text in &args.resource {
            let Some((name, wanted)) = text.split_once('=') else {
                return Err(Failure::usage(format!("'{text}' is not NAME=AMOUNT")));
            };
            let name = name.trim();
            if texts.iter().any(|(other, _)| other == name) {
                let text = format!("Resource '{name}' defined more than once");
                return Err(Failure::usage(text));
            }
            let wanted = amount(wanted)?;
            // What HyperQueue calls 'mem' is counted in MiB there and is a size of its own here.
            needs.resources.push(format!("{name}={}", plain(&wanted)));
            texts.push((name.to_owned(), wanted));
        }
        Ok(Self { needs, texts })
    }
}

/// `2 compact`: without `_`, with a policy.
fn amount(text: &str) -> Result<String, Failure> {
    let mut words = text.split_whitespace();
    let amount = words.next().unwrap_or_default().replace('_', "");
    if amount == "all" {
        return Ok(amount);
    }
    match amount.parse::<f64>() {
        Ok(0.0) => Err(Failure::usage("Zero resources cannot be requested")),
        Ok(_) => Ok(format!("{amount} {}", words.next().unwrap_or("compact"))),
        Err(_) => Err(Failure::usage(format!("'{text}' is not an amount"))),
    }
}

/// Without the policy that is the default.
fn plain(amount: &str) -> String {
    amount.strip_suffix(" compact").unwrap_or(amount).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_get_a_policy() {
        let text = |text: &str| amount(text).map_err(|failure| failure.message);
        assert_eq!(text("1_000").unwrap(), "1000 compact");
        assert_eq!(text("4 compact!").unwrap(), "4 compact!");
        assert_eq!(text("all").unwrap(), "all");
        assert!(text("0").unwrap_err().contains("Zero") && text("x").is_err());
        assert_eq!((plain("2 compact"), plain("2 tight")), ("2".to_owned(), "2 tight".to_owned()));
    }
}
