//! Parses a generator's text: `NAME:key=value,...`.

use super::draw::Draw;
use super::{GENERATORS, Generator};
use crate::graph::Graph;
use crate::graph::builder::GraphBuilder;
use crate::graph::error::GeneratorError;

#[derive(Debug)]
pub(super) struct Keys<'a> {
    pub(super) text: &'a str,
    pub(super) generator: &'a str,
    given: Vec<(&'a str, &'a str)>,
    /// Default values; earlier ones take precedence.
    defaults: Vec<(&'static str, String)>,
}

impl<'a> Keys<'a> {
    pub(super) fn parse(text: &'a str) -> Result<(Self, &'static Generator), GeneratorError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(generator) = GENERATORS.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = GENERATORS.iter().map(|known| known.name).collect();
            let name = name.to_owned();
            return Err(GeneratorError::UnknownGenerator { name, known: names.join(", ") });
        };
        let defaults = generator.defaults.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let mut keys =
            Self { text, generator: name, given: Vec::new(), defaults: defaults.collect() };
        for part in split_outside_brackets(rest) {
            let Some((key, value)) = part.split_once('=') else {
                let (generator, part) = (name.to_owned(), part.to_owned());
                return Err(GeneratorError::NotKeyValue { generator, part });
            };
            let (key, value) = (key.trim(), value.trim());
            let (name, owned) = (name.to_owned(), key.to_owned());
            if !generator.keys.contains(&key) {
                let known = generator.keys.join(", ");
                return Err(GeneratorError::UnknownKey { generator: name, key: owned, known });
            }
            if keys.is_given(key) {
                return Err(GeneratorError::KeyTwice { generator: name, key: owned });
            }
            keys.given.push((key, value));
        }
        Ok((keys, generator))
    }

    /// True if the text itself has this key.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.iter().any(|(known, _)| *known == key)
    }

    /// The key's value, given or by default.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let given = self.given.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        let default = || self.defaults.iter().find(|(known, _)| *known == key);
        given.or_else(|| default().map(|(_, value)| value.as_str()))
    }

    /// Sets a default that takes precedence over all others.
    pub(super) fn prefer(&mut self, key: &'static str, value: String) {
        self.defaults.insert(0, (key, value));
    }

    pub(super) fn bad(&self, key: &str, reason: String) -> GeneratorError {
        GeneratorError::BadValue {
            generator: self.generator.to_owned(),
            key: key.to_owned(),
            value: self.value(key).unwrap_or_default().to_owned(),
            reason,
        }
    }

    /// A whole number; every such key has a default.
    pub(super) fn number(&self, key: &str) -> Result<u64, GeneratorError> {
        let value = self.value(key).expect("a key that is a number is given or has a default");
        let digits: String = value.chars().filter(|c| *c != '_').collect();
        digits.parse().map_err(|_| self.bad(key, "expected a whole number".to_owned()))
    }

    pub(super) fn positive(&self, key: &str) -> Result<u32, GeneratorError> {
        match u32::try_from(self.number(key)?) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(self.bad(key, format!("expected a number from 1 to {}", u32::MAX))),
        }
    }

    /// A value or a distribution of values.
    pub(super) fn draw(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Option<Draw>, GeneratorError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        Draw::parse(value, parse).map(Some).map_err(|reason| self.bad(key, reason))
    }

    /// Sets the placement of loads, and whether their time counts.
    pub(super) fn data_load(&self, builder: &mut GraphBuilder) -> Result<(), GeneratorError> {
        builder.seed(self.number("seed")?);
        match self.value("data-load") {
            Some("unclocked") => Ok(()),
            Some("clocked") => {
                builder.clock_loads();
                Ok(())
            }
            _ => Err(self.bad("data-load", "it is clocked or unclocked".to_owned())),
        }
    }

    /// The finished graph, or its error.
    pub(super) fn finish(&self, builder: GraphBuilder) -> Result<Graph, GeneratorError> {
        let generator = self.generator.to_owned();
        builder.finish().map_err(|source| GeneratorError::Graph { generator, source })
    }
}

/// Splits at commas outside of brackets; an empty text has no parts.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
    .collect()
}
