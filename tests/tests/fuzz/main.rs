//! Fuzzing of all readers of foreign data: messages, event logs, maps, records and workflow files.
//! Good samples are damaged at random.
//!
//! A short run is part of the tests; `STARLING_FUZZ_RUNS` makes it longer (see `docs/faults.md`). A
//! failure prints its minimized input and its seed: `BOLERO_RANDOM_SEED`.

mod messages;
mod records;
mod workflows;

use std::collections::BTreeMap;

/// Executions of each target, unless `STARLING_FUZZ_RUNS` sets another number.
const RUNS: usize = 2000;

fn runs() -> usize {
    std::env::var("STARLING_FUZZ_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(RUNS)
}

/// One change: its kind, its place (a fraction of the whole), and a byte.
type Edit = (u8, u16, u8);
/// The sample, and its changes.
type Damage = (u8, Vec<Edit>);

/// Runs a target on [`runs`] damaged samples.
fn fuzz(samples: &[Vec<u8>], check: impl Fn(usize, &[u8]) + std::panic::RefUnwindSafe) {
    assert!(!samples.is_empty(), "there are samples");
    bolero::check!().with_iterations(runs()).with_type::<Damage>().for_each(|(choice, edits)| {
        let sample = usize::from(*choice) % samples.len();
        check(sample, &damaged(&samples[sample], edits));
    });
}

fn damaged(sample: &[u8], edits: &[Edit]) -> Vec<u8> {
    const EDITS_MAX: usize = 8;
    let mut bytes = sample.to_vec();
    for &(kind, place, byte) in edits.iter().take(EDITS_MAX) {
        let at = (usize::from(place) * (bytes.len() + 1)) >> 16;
        let end = (at + 1 + usize::from(byte % 32)).min(bytes.len());
        match kind % 8 {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end.max(at))),
            2 => bytes.insert(at, byte),
            3 => {
                let piece = bytes[at..end.max(at)].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            4 => bytes[at..end.max(at)].fill(byte),
            // Long lengths and varints.
            5 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([byte]))),
            6 => {
                if let Some(digit) = bytes[at..].iter_mut().find(|b| b.is_ascii_digit()) {
                    *digit = b'0' + byte % 10;
                }
            }
            _ => {
                if let Some(at) = bytes.get_mut(at) {
                    *at ^= byte;
                }
            }
        }
    }
    bytes
}

/// The golden samples of one file by name.
fn golden(file: &str) -> BTreeMap<String, Vec<u8>> {
    let path = starling_tests::repository().join("tests/golden").join(file);
    let text = std::fs::read_to_string(path).expect("the golden bytes are there");
    let line = |line: &str| {
        let (name, hex) = line.split_once(' ').expect("a name and its bytes");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("bytes are in hex");
        (name.to_owned(), (0..hex.len()).step_by(2).map(byte).collect())
    };
    text.lines().map(line).collect()
}
