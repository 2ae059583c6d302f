//! Variants of a task in a workflow file: the text of their needs, and a command of their own.

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

const FIELDS: [&str; 2] = ["needs", "command"];

/// `"cpus=8"`, or `{ needs = "cpus=8", command = ["./on-cpus"] }`.
#[derive(Debug, Default)]
pub(super) struct RawVariant {
    pub(super) needs: String,
    /// Empty: the command of the task.
    pub(super) command: Vec<String>,
}

impl<'de> Deserialize<'de> for RawVariant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = RawVariant;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the needs of a variant, or a table of needs and command")
            }
            fn visit_str<E>(self, needs: &str) -> Result<RawVariant, E> {
                Ok(RawVariant { needs: needs.to_owned(), command: Vec::new() })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawVariant, A::Error> {
                let (mut needs, mut command) = (None, None::<Vec<String>>);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "needs" => needs = Some(map.next_value()?),
                        "command" => command = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            return Err(A::Error::unknown_field(&key, &FIELDS));
                        }
                    }
                }
                let needs = needs.ok_or_else(|| A::Error::missing_field("needs"))?;
                match command {
                    Some(command) if command.first().is_none_or(String::is_empty) => {
                        Err(A::Error::custom("the command of a variant is empty"))
                    }
                    command => Ok(RawVariant { needs, command: command.unwrap_or_default() }),
                }
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

/// The needs of each variant, and its command.
pub(super) fn needs_and_commands(
    given: Option<toml::Spanned<Vec<RawVariant>>>,
) -> (Vec<String>, Vec<Vec<String>>) {
    let variants = given.map(|given| given.into_inner()).unwrap_or_default();
    variants.into_iter().map(|variant| (variant.needs, variant.command)).unzip()
}

/// The commands of variants, by the position of the variant among all variants of the task.
/// `further`: the last variants, which the list names.
pub(super) fn commands(further: Vec<Vec<String>>, all: usize) -> Vec<(u32, Vec<String>)> {
    let first = all.saturating_sub(further.len());
    let numbered = (0..).zip(further).map(|(at, argv): (usize, _)| ((first + at) as u32, argv));
    numbered.filter(|(_, argv)| !argv.is_empty()).collect()
}
