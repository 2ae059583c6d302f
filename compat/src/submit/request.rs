//! The resources of a submission: for Starling, and as HyperQueue shows them.

use std::time::Duration;

use client::Needs;
use verb::errors::Failure;

use crate::args::SubmitArgs;
use crate::records::Way;

/// The weights of Starling are whole numbers; only their order counts.
const WEIGHT_UNITS: f64 = 100.0;
const WEIGHT_MAX: f64 = 10_000.0;

pub(crate) struct Wanted {
    pub(crate) needs: Needs,
    pub(crate) ways: Vec<Way>,
}

impl Wanted {
    pub(crate) fn of(args: &SubmitArgs) -> Result<Self, Failure> {
        let mut ways = match args.ways.is_empty() {
            true => vec![of_flags(args)?],
            false => args.ways.clone(),
        };
        let needs = match &ways[..] {
            [only] => Needs { resources: wants(only), ..Needs::default() },
            several => {
                let has_weights = several.iter().any(|way| way.weight.is_some());
                let text = |way: &Way| {
                    let weight = has_weights.then(|| format!("weight={}", units(way.weight)));
                    wants(way).into_iter().chain(weight).collect::<Vec<_>>().join(", ")
                };
                let variants = several.iter().map(text).collect();
                // HyperQueue takes any variant that fits.
                Needs { variants, patience: Some(Duration::ZERO), ..Needs::default() }
            }
        };
        if args.nodes.is_some() {
            // HyperQueue shows whole workers by their number alone.
            for way in &mut ways {
                way.amounts.retain(|(name, amount)| name != "cpus" || amount != "all");
            }
        }
        Ok(Self { needs, ways })
    }
}

fn of_flags(args: &SubmitArgs) -> Result<Way, Failure> {
    // A task on several workers has whole ones.
    let default = if args.nodes.is_some() { "all" } else { "1" };
    let cpus = args.cpus.as_deref().unwrap_or(default);
    let mut amounts = vec![("cpus".to_owned(), amount(cpus)?)];
    for text in &args.resource {
        let Some((name, wanted)) = text.split_once('=') else {
            return Err(Failure::usage(format!("'{text}' is not NAME=AMOUNT")));
        };
        let name = name.trim();
        if amounts.iter().any(|(other, _)| other == name) {
            return Err(Failure::usage(format!("Resource '{name}' defined more than once")));
        }
        amounts.push((name.to_owned(), amount(wanted)?));
    }
    let time_request_ns = args.time_request.map_or(0, |length| length.0.as_nanos() as u64);
    Ok(Way { amounts, weight: args.weight, time_request_ns })
}

fn units(weight: Option<f64>) -> u16 {
    (weight.unwrap_or(1.0) * WEIGHT_UNITS).round().clamp(1.0, WEIGHT_MAX) as u16
}

/// `2 compact`: without `_`, with a policy.
pub(crate) fn amount(text: &str) -> Result<String, Failure> {
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

/// The amounts for Starling, in which a task has whole cpus.
fn wants(way: &Way) -> Vec<String> {
    let want = |(name, text): &(String, String)| {
        let text = text.strip_suffix(" compact").unwrap_or(text);
        let (amount, policy) = text.split_once(' ').map_or((text, None), |(a, p)| (a, Some(p)));
        let part = amount.parse::<f64>().ok().filter(|cpus| name == "cpus" && cpus.fract() > 0.0);
        let amount = part.map_or_else(|| amount.to_owned(), |cpus| cpus.ceil().to_string());
        let policy = policy.map_or_else(String::new, |policy| format!(" {policy}"));
        format!("{name}={amount}{policy}")
    };
    way.amounts.iter().map(want).collect()
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
    }

    #[test]
    fn parts_of_cpus_are_rounded_up_and_variants_have_weights() {
        let way = |amounts: &[(&str, &str)], weight| Way {
            amounts: amounts.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect(),
            weight,
            ..Way::default()
        };
        let one = way(&[("cpus", "2.5 compact!"), ("foo", "0.5 compact"), ("x", "all")], None);
        assert_eq!(wants(&one), ["cpus=3 compact!", "foo=0.5", "x=all"]);
        let mut args = SubmitArgs::plain(&["true".to_owned()]).unwrap();
        args.ways = vec![way(&[("cpus", "2 tight")], Some(2.0)), way(&[("gpus", "1")], Some(0.5))];
        let wanted = Wanted::of(&args).unwrap();
        assert_eq!(wanted.needs.variants, ["cpus=2 tight, weight=200", "gpus=1, weight=50"]);
        assert!(wanted.needs.request().is_ok());
    }
}
