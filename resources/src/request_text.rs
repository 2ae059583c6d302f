//! The text of a request: needs, labels and a weight.

use std::str::FromStr;

use crate::limits::REQUEST_BYTES_MAX;
use crate::name::Name;
use crate::request::{Policy, Quantity, Request, RequestError, Shape, Variant, Want, check_count};

impl FromStr for Policy {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let (shape, strict) = match text.strip_suffix('!') {
            Some(shape) => (shape, true),
            None => (text, false),
        };
        let shape = match shape {
            "compact" => Shape::Compact,
            "tight" => Shape::Tight,
            "scatter" => Shape::Scatter,
            _ => return Err(RequestError::Policy(text.to_owned())),
        };
        Ok(Self { shape, strict })
    }
}

/// `gpus=0.5`, `cpus=all`, `cpus=8 compact!`, `memory=2GiB`.
pub fn parse_want(text: &str) -> Result<Want, RequestError> {
    let wrong = || RequestError::Syntax(text.to_owned());
    let (name, need) = text.split_once('=').ok_or_else(wrong)?;
    let pool = Name::pool(name.trim())?;
    let need = need.trim();
    let (amount, policy) = match need.split_once(char::is_whitespace) {
        Some((amount, policy)) => (amount, policy.trim().parse()?),
        None => (need, Policy::default()),
    };
    let quantity = match amount {
        "" => return Err(wrong()),
        "all" => Quantity::All,
        amount => Quantity::Amount(amount.parse()?),
    };
    Ok(Want::new(pool, quantity, policy))
}

/// `cpus=4 tight!, gpus=1, label=avx512, weight=2`: the text of one variant.
pub fn parse_variant(text: &str) -> Result<Variant, RequestError> {
    check_count("characters", text.len(), REQUEST_BYTES_MAX)?;
    let (mut wants, mut labels, mut weight) = (Vec::new(), Vec::new(), 1);
    for part in text.split(',').map(str::trim) {
        match part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("label", label)) => labels.push(Name::label(label)?),
            Some(("weight", value)) => {
                weight = value.parse().map_err(|_| RequestError::Weight(value.to_owned()))?;
            }
            _ => wants.push(parse_want(part)?),
        }
    }
    Variant::new(wants, labels, weight)
}

impl Request {
    /// The encoded request of a function call; empty: cpus alone. `further`: what it asks for
    /// beside cpus and memory, such as `gpus=1, label=fast`; it may be empty.
    ///
    /// # Errors
    /// When the text is no variant, or asks for one thing twice.
    pub fn of_call(cpus: u32, memory_bytes: u64, further: &str) -> Result<Vec<u8>, RequestError> {
        let mut text = format!("cpus={cpus}");
        if memory_bytes > 0 {
            text.push_str(&format!(", memory={memory_bytes}"));
        }
        if !further.is_empty() {
            text.push_str(&format!(", {further}"));
        }
        match memory_bytes == 0 && further.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(Self::new(vec![parse_variant(&text)?])?.encode()),
        }
    }
}

impl FromStr for Request {
    type Err = RequestError;

    /// Variants separated by `|`. An empty text is the request of one cpu.
    fn from_str(text: &str) -> Result<Self, RequestError> {
        match text.trim() {
            "" => Ok(Self::one_cpu()),
            text => Self::new(text.split('|').map(parse_variant).collect::<Result<_, _>>()?),
        }
    }
}
