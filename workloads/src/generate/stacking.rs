//! Image stacking: each task reads one file of a few megabytes, and a final task combines the
//! results. *Locality* is the number of tasks that read the same file.

use super::keys::Keys;
use super::shapes::task_count;
use super::{Data, KIND_LOAD, STREAM_FILES, STREAM_ORDER, STREAM_SIZE};
use super::{body_and_duration, output_of, spec_of};
use crate::generate::random::Shuffle;
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_size_bytes;
use proto::wire;

/// Tasks and files of each locality. The paper states only the localities. The counts are from
/// memory of an earlier paper on data diffusion and could not be verified.
const ASSUMED: &[(&str, u32, u32)] = &[
    ("1", 111_700, 111_700),
    ("1.38", 154_345, 111_699),
    ("2", 97_999, 49_000),
    ("3", 88_857, 29_620),
    ("4", 76_575, 19_145),
    ("5", 60_590, 12_120),
    ("10", 46_480, 4_650),
    ("20", 40_460, 2_025),
    ("30", 23_695, 790),
];
const LOCALITY_DEFAULT: &str = "1";

pub(super) fn build(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let (tasks, files, is_assumed) = counts(keys)?;
    let seed = keys.number("seed")?;
    let data = Data { seed };
    let (body, duration) = body_and_duration(keys)?;
    let size = keys.draw("size", parse_size_bytes)?.expect("it has a default");
    let output = keys.draw("output", parse_size_bytes)?.expect("it has a default");
    let mut builder = GraphBuilder::new(keys.text);
    builder.reserve(tasks as usize + files as usize + 1, 2 * tasks as usize);
    keys.data_load(&mut builder)?;
    if is_assumed {
        builder.note("the counts of tasks and files are assumed: the paper names localities only");
    }
    let noop = || wire::spec::Body::Noop(wire::Noop {});
    let image = output_of("out", "f{i}", size);
    let load = builder.spec(spec_of(KIND_LOAD, "f{i}", noop(), [image]));
    let result = output_of("out", "s{i}.out", output);
    let stack = builder.spec(spec_of("stack", "s{i}", body, [result]));
    let total = builder.spec(spec_of("aggregate", "aggregate", noop(), []));
    for file in 0..u64::from(files) {
        let bytes = size.fixed().is_none().then(|| size.at(seed, STREAM_SIZE, file));
        let output_sizes = bytes.as_slice();
        builder.task(TaskInit { entry: file, output_sizes, ..TaskInit::of(load) });
    }
    // All files are read equally often, within one. Tasks and files are shuffled.
    let order = Shuffle::new(seed, STREAM_ORDER, u64::from(tasks));
    let chosen = Shuffle::new(seed, STREAM_FILES, u64::from(files));
    for index in 0..u64::from(tasks) {
        let bytes = output.fixed().is_none().then(|| data.size(output, index));
        let task = builder.task(TaskInit {
            entry: index,
            duration_ns: duration.map_or(0, |draw| data.duration_ns(draw, index)),
            output_sizes: bytes.as_slice(),
            ..TaskInit::of(stack)
        });
        let file = chosen.at(order.at(index) % u64::from(files)) as u32;
        builder.edge(file, task, 1);
    }
    let last = builder.task(TaskInit::of(total));
    for task in files..last {
        builder.edge(task, last, 1);
    }
    keys.finish(builder)
}

/// Tasks, files, and whether they are from the table.
fn counts(keys: &Keys<'_>) -> Result<(u32, u32, bool), GeneratorError> {
    let has = |key| keys.value(key).is_some();
    if has("tasks") || has("files") {
        if has("locality") {
            let reason = "give a locality, or tasks and files".to_owned();
            return Err(keys.bad("locality", reason));
        }
        for (key, other) in [("tasks", "files"), ("files", "tasks")] {
            if !has(other) {
                return Err(keys.bad(key, format!("it needs {other} beside it")));
            }
        }
        let (tasks, files) = (task_count(keys, "tasks")?, task_count(keys, "files")?);
        if files > tasks {
            return Err(keys.bad("files", format!("{tasks} tasks do not read them all")));
        }
        return Ok((tasks, files, false));
    }
    let locality = keys.value("locality").unwrap_or(LOCALITY_DEFAULT);
    match ASSUMED.iter().find(|(known, ..)| *known == locality) {
        Some(&(_, tasks, files)) => Ok((tasks, files, true)),
        None => {
            let known: Vec<&str> = ASSUMED.iter().map(|(known, ..)| *known).collect();
            let known = known.join(", ");
            Err(keys.bad("locality", format!("known are {known}; else give tasks and files")))
        }
    }
}
