//! Thousands of damaged files, made from valid ones by a seed. Each is either still a workflow or
//! refused with one line. The line has the place if the damage is in the text itself.

use std::collections::BTreeMap;

use workloads::{Format, LoadOptions, OutputFormat, generate, read, write};

/// The number of damaged files per valid one.
const VARIANTS: u64 = 400;

/// SplitMix64: small, and identical everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

fn good_files() -> Vec<(&'static str, Format, Vec<u8>)> {
    let graph = generate("fan-in:tasks=12,degree=3,duration=10ms,output=5MB").expect("it is right");
    let stg =
        "6\n0 0 0\n1 3 1 0\n2 4 1 0\n3 2 2 1 2\n4 5 1 3\n5 1 1 3\n6 2 2 4 5\n7 0 1 6\n# end\n";
    let costs = "3\n0 1 0\n1 2 1 0 0.5\n2 4 2 1 2 0 0\n";
    let dot = "strict digraph G {\n // c\n node [size=\"1e9\"];\n a [size=\"2e9\"]; {b c} -> \"d e\" \
        [size=\"1e6\", label=<<i>x</i>>];\n a -> b -> c /* x */ [size=3]; subgraph s { f; f -> g } }\n";
    let estee = r#"[{"d": 1.5, "e_d": 2, "cpus": 2, "outputs": [{"s": 3, "e_s": 4}], "inputs": []},
        {"d": 2, "e_d": null, "cpus": 1, "outputs": [{"s": 0.5, "e_s": 1}, {"s": 1, "e_s": 1}],
         "inputs": [[0, 0]]}, {"d": 3, "cpus": 1, "outputs": [], "inputs": [[0, 0], [1, 1]]}]"#;
    let dax = r#"<?xml version="1.0"?><adag name="x"><job id="A" name="p" runtime="1.5">
        <uses file="f" link="output" size="4"/></job><job id="B" runtime="2"><uses file="f"
        link="input" size="4"/><profile namespace="pegasus" key="cores">2</profile></job>
        <job id="C" runtime="1e2"/><child ref="B"><parent ref="A"/><parent ref="C"/></child>
        <child ref="C"><parent ref="A"/></child></adag>"#;
    let swf = "; MaxJobs: 3\n\
        7 100 -1  10  4 -1 2048 -1 60 -1 1 1 1 1 1 1 -1 -1\n\
        8  90 -1  -1 -1 -1   -1  2 30 -1 5 1 1 1 1 1  7  5\n\
        9 150  3 2.5 -1 -1   -1 -1 -1 -1 1 1 1 1 1 1  8 -1\n";
    let trace = "{\"job\": \"j_1\", \"tasks\": [{\"name\": \"R2_1\", \"start\": 3, \
        \"expected_duration\": 1.5, \"cpu\": 100.0}, {\"name\": \"M1\"}]}\n\
        {\"job\": \"j_2\", \"tasks\": [{\"name\": \"M1\", \"start\": 9}]}\n";
    let csv = "M1,4,j_1,1,Terminated,100,110,150.0,0.3\nR2_1,1,j_1,1,Terminated,110,112,100,0.3\n\
        R3_1_2,1,j_1,1,Waiting,0,0,,\ntask_abc=,1,j_2,1,Failed,105,105,50,0.1\n";
    let flat = r#"{"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": [
        {"name": "a", "runtime": 1, "parents": [], "children": ["b"], "memory": 3,
         "files": [{"link": "output", "name": "f", "size": 30}]},
        {"name": "b", "runtime": "2.5", "cores": 2, "parents": ["a"],
         "files": [{"link": "input", "name": "f", "size": 30}]}]}}"#;
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("wfformat 1.5", Format::WfFormat, write(&graph, OutputFormat::WfFormat).into_bytes()),
        ("wfformat 1.3", Format::WfFormat, text(flat)),
        ("toml", Format::Toml, write(&graph, OutputFormat::Toml).into_bytes()),
        ("dot written", Format::Dot, write(&graph, OutputFormat::Dot).into_bytes()),
        ("dot", Format::Dot, text(dot)),
        ("stg", Format::Stg, text(stg)),
        ("stg with costs", Format::Stg, text(costs)),
        ("estee", Format::Estee, text(estee)),
        ("dax", Format::Dax, text(dax)),
        ("swf", Format::Swf, text(swf)),
        ("alibaba objects", Format::Alibaba, text(trace)),
        ("alibaba columns", Format::Alibaba, text(csv)),
    ]
}

/// Damages the text in one of many ways, one to four times.
fn damaged(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b"\0",
        b"\xff",
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b"<",
        b">",
        b"->",
        b",",
        b"\n",
        b"-1",
        b"0",
        b"1e400",
        b"NaN",
        b"18446744073709551616",
        b"4294967295",
        b"&#x0;",
        b"<!--",
        b"/*",
        b"\\",
    ];
    let mut text = good.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(text.len() + 1);
        let end = (at + 1 + dice.below(24)).min(text.len());
        match dice.below(8) {
            0 => text.truncate(at),
            1 => drop(text.drain(at..end)),
            2 => text[at..end].reverse(),
            3 => {
                let piece = PIECES[dice.below(PIECES.len())];
                drop(text.splice(at..at, piece.iter().copied()));
            }
            4 => {
                // Inserts a piece of the text at another position.
                let piece = text[at..end].to_vec();
                let to = dice.below(text.len() + 1);
                drop(text.splice(to..to, piece));
            }
            5 => {
                // Repeats a line: a task or a header.
                let start = text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                let stop = text[at..].iter().position(|b| *b == b'\n').map_or(end, |n| at + n + 1);
                let line = text[start..stop.max(start)].to_vec();
                drop(text.splice(start..start, line));
            }
            6 => {
                // Replaces a digit: other tasks, other sizes, cycles.
                if let Some(digit) = text[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                    *digit = b'0' + dice.below(10) as u8;
                }
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    text
}

#[test]
fn damaged_files_are_refused_with_their_place() {
    let mut seen: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for (kind, format, good) in good_files() {
        let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
        let again = read(good.as_slice(), "w", None, &options);
        assert!(again.is_ok(), "{kind}: {}", again.unwrap_err());
        let [fine, placed, named] = seen.entry(kind).or_default();
        for seed in 0..VARIANTS {
            let text = damaged(&good, &mut Dice(seed ^ (good.len() as u64) << 32));
            // As its own format, and as the detected one.
            for format in [Some(format), None] {
                let result = read(text.as_slice(), "w", format, &options);
                let shown = || String::from_utf8_lossy(&text).into_owned();
                let Err(error) = result else {
                    *fine += 1;
                    continue;
                };
                let told = error.to_string();
                assert!(!told.contains(['\n', '\0']), "{kind}, seed {seed}: {told:?}");
                match error.at {
                    Some((line, column)) => {
                        let lines = text.split(|byte| *byte == b'\n').count();
                        assert!(
                            (1..=lines).contains(&line) && column <= text.len() + 1,
                            "{kind}, seed {seed}: {told}\n{}",
                            shown()
                        );
                        *placed += 1;
                    }
                    None => {
                        // A problem of the whole text, or of named tasks.
                        let is_named = told.contains('\'') || told.contains("cycle: ");
                        let is_whole = told.contains("not a workflow") || told.contains("no tasks");
                        let is_placed = is_named || is_whole || told.contains("from byte");
                        assert!(is_placed, "{kind}, seed {seed}: {told}\n{}", shown());
                        *named += 1;
                    }
                }
            }
        }
    }
    let sum = |at: usize| seen.values().map(|counts| counts[at]).sum::<u64>();
    println!("by kind: fine, refused with a place, refused by name: {seen:?}");
    assert!(sum(0) + sum(1) + sum(2) >= 4000, "2,000 files, each read twice");
    for (kind, [fine, placed, _]) in &seen {
        assert!(*fine > 0 && *placed > 0, "{kind}: some are fine and some are refused");
    }
}
