//! `--network`: `maxmin`, `flat`, or `tree:racks=32,oversubscription=4`.

use std::str::FromStr;

use ::sim::{NetworkModel, Racks};
use proto::Span;
use verb::errors::Failure;

const KNOWN: &str = "maxmin, flat and tree:racks=N,oversubscription=X";

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum NetworkChoice {
    /// Max-min fair sharing of full-duplex cards.
    Maxmin,
    /// Latency and bandwidth for each transfer alone.
    Flat,
    /// As the first, and racks share their links up and down.
    Tree(Racks),
}

impl FromStr for NetworkChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "maxmin" => Ok(Self::Maxmin),
            // Estee's name for it.
            None if text == "flat" || text == "simple" => Ok(Self::Flat),
            Some(("tree", keys)) => tree(keys).map(Self::Tree),
            _ if text == "tree" => Err("a tree has racks, such as tree:racks=32".to_owned()),
            _ => Err(format!("'{text}' is no network: known are {KNOWN}")),
        }
    }
}

fn tree(keys: &str) -> Result<Racks, String> {
    let (mut racks, mut oversubscription) = (None, 1.0);
    for part in keys.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "racks" => {
                let number = value.parse::<u32>().ok().filter(|&number| number > 0);
                racks = Some(number.ok_or_else(|| format!("racks={value}: not a number from 1"))?);
            }
            "oversubscription" => {
                let number = value.parse::<f64>().ok();
                oversubscription = number
                    .filter(|number| number.is_finite() && *number >= 1.0)
                    .ok_or_else(|| format!("oversubscription={value}: not a number from 1"))?;
            }
            _ => {
                return Err(format!("'{key}' is no key of a tree: racks and oversubscription are"));
            }
        }
    }
    let racks = racks.ok_or_else(|| "a tree has racks, such as tree:racks=32".to_owned())?;
    Ok(Racks { racks, oversubscription })
}

impl NetworkChoice {
    pub(super) fn model(
        self,
        nodes: u32,
        latency: Span,
        bytes_per_s: f64,
    ) -> Result<NetworkModel, Failure> {
        Ok(match self {
            Self::Maxmin => NetworkModel::MaxMin { latency, bytes_per_s },
            Self::Flat => NetworkModel::Flat { latency, bytes_per_s },
            Self::Tree(racks) if racks.racks <= nodes => {
                NetworkModel::Tree { latency, bytes_per_s, racks }
            }
            Self::Tree(racks) => {
                let text = format!("--network: {} racks for {nodes} nodes", racks.racks);
                return Err(Failure::usage(text).hint("every rack has at least one node"));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_wrong_ones_say_what_is_wrong() {
        let read = |text: &str| text.parse::<NetworkChoice>();
        assert_eq!(read("maxmin"), Ok(NetworkChoice::Maxmin));
        assert_eq!(read("flat"), Ok(NetworkChoice::Flat));
        let tree =
            |racks, oversubscription| Ok(NetworkChoice::Tree(Racks { racks, oversubscription }));
        assert_eq!(read("tree:racks=32,oversubscription=4"), tree(32, 4.0));
        assert_eq!(read("tree:racks=2"), tree(2, 1.0));
        for (text, part) in [
            ("ring", "'ring' is no network"),
            ("tree", "a tree has racks"),
            ("tree:oversubscription=4", "a tree has racks"),
            ("tree:racks=0", "racks=0"),
            ("tree:racks=2,oversubscription=0.5", "oversubscription=0.5"),
            ("tree:racks=2,depth=3", "'depth' is no key"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_tree_has_no_more_racks_than_nodes() {
        let racks = Racks { racks: 5, oversubscription: 1.0 };
        let model = |nodes| NetworkChoice::Tree(racks).model(nodes, Span::ZERO, 1e9);
        assert!(model(5).is_ok());
        assert!(model(4).unwrap_err().render().contains("5 racks for 4 nodes"));
    }
}
