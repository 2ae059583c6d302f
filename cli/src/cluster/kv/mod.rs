//! `starling kv`: the key-value store.

mod batch;

use std::io::Read;

use clap::{Args, Subcommand};
use client::Cas;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard, plain};

#[derive(Subcommand, Debug)]
pub(crate) enum KvVerb {
    /// Set a key
    Insert(Pair),
    /// Print the value of a key; exit 1 if it is absent
    Lookup { key: String },
    /// Remove a key; exit 1 if it was absent
    Remove { key: String },
    /// Append to a value
    Append(Pair),
    /// Set a key if it has the expected value; exit 1 if it does not
    Cas {
        #[command(flatten)]
        pair: Pair,
        /// The expected value
        #[arg(long, required_unless_present = "absent", conflicts_with = "absent")]
        expect: Option<String>,
        /// The key must be absent
        #[arg(long)]
        absent: bool,
    },
    /// Execute the lines of standard input, one JSON object each; answer with a line for each
    Batch,
    /// Print every new value of a key
    Watch {
        key: String,
        /// End after this many changes
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// The version that is known already; without it a present value is printed at once
        #[arg(long, value_name = "VERSION", default_value_t = 0)]
        after: u64,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Pair {
    key: String,
    /// The value; '-' or nothing reads standard input
    value: Option<String>,
}

impl Pair {
    fn value(&self) -> Result<Vec<u8>, Failure> {
        match self.value.as_deref() {
            None | Some("-") => {
                let limit = proto::limits::VALUE_BYTES_MAX as u64 + 1;
                let mut bytes = Vec::new();
                let read = std::io::stdin().lock().take(limit).read_to_end(&mut bytes);
                read.map_err(|error| {
                    Failure::refused(format!("standard input: {}", plain(&error)))
                })?;
                Ok(bytes)
            }
            Some(text) => Ok(text.as_bytes().to_vec()),
        }
    }
}

/// One key as JSON; a value that is no text is in hexadecimal.
#[derive(Default, Serialize)]
pub(crate) struct KeyRow {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swapped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
}

impl KeyRow {
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), ..Self::default() }
    }
    pub(crate) fn with(mut self, value: Option<client::Value>) -> Self {
        if let Some(value) = value {
            self.version = Some(value.version);
            match std::str::from_utf8(&value.bytes) {
                Ok(text) => self.value = Some(text.to_owned()),
                Err(_) => self.value_hex = Some(security::to_hex(&value.bytes)),
            }
        }
        self
    }
}

pub(crate) fn run(context: &Context, verb: &KvVerb) -> Done {
    verb::block_on(async {
        let kv = context.connect().await?.kv();
        match verb {
            KvVerb::Insert(pair) => {
                let version = kv.insert(pair.key.as_bytes(), &pair.value()?).await?;
                written(context, &pair.key, version)
            }
            KvVerb::Append(pair) => {
                let version = kv.numbered()?.append(pair.key.as_bytes(), &pair.value()?).await?;
                written(context, &pair.key, version)
            }
            KvVerb::Lookup { key } => {
                let value = kv.lookup(key.as_bytes()).await?;
                let found = value.is_some();
                if context.output.json {
                    let shown = KeyRow { found: Some(found), ..KeyRow::new(key) };
                    heard(context.output.json(&shown.with(value)))?;
                } else if let Some(value) = value {
                    heard(raw(context, &value.bytes))?;
                } else {
                    context.output.note(&format!("no key '{key}'"));
                }
                Ok(yes_or_no(found))
            }
            KvVerb::Remove { key } => {
                let found = kv.remove(key.as_bytes()).await?;
                if context.output.json {
                    let shown = KeyRow { found: Some(found), ..KeyRow::new(key) };
                    heard(context.output.json(&shown))?;
                } else if !found {
                    context.output.note(&format!("no key '{key}'"));
                }
                Ok(yes_or_no(found))
            }
            KvVerb::Cas { pair, expect, absent: _ } => {
                let expected = expect.as_deref().map(str::as_bytes);
                let done =
                    kv.numbered()?.cas(pair.key.as_bytes(), expected, &pair.value()?).await?;
                swapped(context, &pair.key, done)
            }
            KvVerb::Batch => batch::run(context, &kv).await,
            KvVerb::Watch { key, count, after } => {
                watch(context, kv.watch(key.as_bytes(), *after), key, *count).await
            }
        }
    })
}

fn yes_or_no(yes: bool) -> Exit {
    if yes { Exit::Ok } else { Exit::Failed }
}

fn written(context: &Context, key: &str, version: u64) -> Done {
    if context.output.json {
        context.output.json(&KeyRow { version: Some(version), ..KeyRow::new(key) })?;
    }
    Ok(Exit::Ok)
}

fn swapped(context: &Context, key: &str, done: Cas) -> Done {
    let (swapped, shown) = match done {
        Cas::Swapped { version } => (true, KeyRow { version: Some(version), ..KeyRow::new(key) }),
        Cas::Conflict { present } => (false, KeyRow::new(key).with(present)),
    };
    if context.output.json {
        heard(context.output.json(&KeyRow { swapped: Some(swapped), ..shown }))?;
    } else if !swapped {
        let holds = match (&shown.value, &shown.value_hex) {
            (Some(text), _) => format!("holds '{text}'"),
            (None, Some(hex)) => format!("holds the bytes {hex}"),
            (None, None) => "is absent".to_owned(),
        };
        context.output.note(&format!("not swapped: '{key}' {holds}"));
    }
    Ok(yes_or_no(swapped))
}

/// Prints a value as it is; on a terminal with a line end if the value has none.
fn raw(context: &Context, value: &[u8]) -> Result<(), Failure> {
    use std::io::IsTerminal;
    context.output.bytes(value)?;
    match std::io::stdout().is_terminal() && !value.ends_with(b"\n") {
        true => context.output.bytes(b"\n"),
        false => Ok(()),
    }
}

async fn watch(
    context: &Context,
    mut watch: client::KeyWatch,
    key: &str,
    count: Option<u64>,
) -> Done {
    let mut seen = 0;
    while count.is_none_or(|count| seen < count) {
        let (value, version) = watch.next().await?;
        seen += 1;
        if context.output.json {
            let shown = KeyRow { found: Some(value.is_some()), ..KeyRow::new(key) }.with(value);
            context.output.json(&KeyRow { version: Some(version), ..shown })?;
        } else {
            let value = value.map(|value| value.bytes).unwrap_or_default();
            context.output.bytes(&[&value[..], b"\n"].concat())?;
        }
    }
    Ok(Exit::Ok)
}
