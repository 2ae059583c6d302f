//! Writes the example `examples/mosaic.json`: a WfFormat workflow for a mosaic of the sky from
//! overlapping images in three colours, as astronomers make it.
//!
//! Every image is projected, and every overlapping pair is compared. All differences of a colour
//! are fitted to a background model, which corrects every image. The corrected images are
//! tabulated, added and shrunk, and the three colours become one picture. Runtimes and sizes are
//! invented in realistic proportions, with a seeded spread.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Findings;

const SIDE: usize = 6;
const BANDS: [&str; 3] = ["blue", "red", "infrared"];
const MEGABYTE: u64 = 1_000_000;

struct Task {
    name: &'static str,
    id: String,
    seconds: f64,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

#[derive(Default)]
struct Mosaic {
    tasks: Vec<Task>,
    /// The size of each file, by name.
    files: BTreeMap<String, u64>,
    random: u64,
}

pub(crate) fn write(root: &Path) -> Findings {
    let mut mosaic = Mosaic { random: 2026, ..Mosaic::default() };
    for band in BANDS {
        mosaic.band(band);
    }
    let shrunk = BANDS.iter().map(|band| format!("{band}-shrunk.fits")).collect();
    mosaic.task("colour", "colour", 3.0, shrunk, &[("mosaic.jpg", 2)]);
    match fs::write(root.join("examples/mosaic.json"), mosaic.json()) {
        Ok(()) => Findings::new(),
        Err(error) => vec![format!("examples/mosaic.json: {error}")],
    }
}

impl Mosaic {
    fn band(&mut self, band: &str) {
        let cells = || (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column)));
        let header = format!("{band}.hdr");
        self.files.insert(header.clone(), 1_000);
        for (row, column) in cells() {
            let raw = format!("{band}-{row}-{column}.fits");
            self.files.insert(raw.clone(), 4 * MEGABYTE);
            let id = format!("{band}-project-{row}-{column}");
            let out = format!("{band}-projected-{row}-{column}.fits");
            self.task("project", &id, 4.0, vec![raw, header.clone()], &[(&out, 8)]);
        }
        let mut differences = Vec::new();
        for (row, column) in cells() {
            for (down, right) in [(0, 1), (1, 0), (1, 1)] {
                let (other_row, other_column) = (row + down, column + right);
                if other_row >= SIDE || other_column >= SIDE {
                    continue;
                }
                let pair = format!("{row}-{column}-{other_row}-{other_column}");
                let inputs = vec![
                    format!("{band}-projected-{row}-{column}.fits"),
                    format!("{band}-projected-{other_row}-{other_column}.fits"),
                ];
                let out = format!("{band}-difference-{pair}.txt");
                self.task("compare", &format!("{band}-compare-{pair}"), 0.4, inputs, &[(&out, 0)]);
                differences.push(out);
            }
        }
        let fits = format!("{band}-fits.tbl");
        self.task("fit", &format!("{band}-fit"), 1.5, differences, &[(&fits, 0)]);
        let model = format!("{band}-model.tbl");
        self.task("model", &format!("{band}-model"), 5.0, vec![fits], &[(&model, 0)]);
        let mut corrected = Vec::new();
        for (row, column) in cells() {
            let projected = format!("{band}-projected-{row}-{column}.fits");
            let out = format!("{band}-corrected-{row}-{column}.fits");
            let id = format!("{band}-correct-{row}-{column}");
            self.task("correct", &id, 0.8, vec![projected, model.clone()], &[(&out, 8)]);
            corrected.push(out);
        }
        let table = format!("{band}-images.tbl");
        self.task("tabulate", &format!("{band}-tabulate"), 1.0, corrected.clone(), &[(&table, 0)]);
        corrected.push(table);
        let sum = format!("{band}-mosaic.fits");
        self.task("add", &format!("{band}-add"), 6.0, corrected, &[(&sum, 160)]);
        let shrunk = format!("{band}-shrunk.fits");
        self.task("shrink", &format!("{band}-shrink"), 2.0, vec![sum], &[(&shrunk, 6)]);
    }

    /// Adds a task. Its runtime is spread by a quarter in both directions; the sizes of its outputs
    /// are in MB.
    fn task(
        &mut self,
        name: &'static str,
        id: &str,
        seconds: f64,
        inputs: Vec<String>,
        outputs: &[(&str, u64)],
    ) {
        // Knuth's linear congruential generator: the same file on every machine.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let spread = 0.75 + 0.5 * (self.random >> 40) as f64 / (1_u64 << 24) as f64;
        for (file, megabytes) in outputs {
            self.files.insert((*file).to_owned(), (megabytes * MEGABYTE).max(4_000));
        }
        let outputs = outputs.iter().map(|(file, _)| (*file).to_owned()).collect();
        let id = id.to_owned();
        self.tasks.push(Task { name, id, seconds: seconds * spread, inputs, outputs });
    }

    /// WfFormat 1.5, one task a line.
    fn json(&self) -> String {
        let mut makers: BTreeMap<&str, &str> = BTreeMap::new();
        for task in &self.tasks {
            for file in &task.outputs {
                assert!(makers.insert(file, &task.id).is_none(), "{file} is made twice");
            }
        }
        let parents_of = |task: &Task| -> Vec<String> {
            let makers = task.inputs.iter().filter_map(|file| makers.get(file.as_str()));
            makers.map(|id| (*id).to_owned()).collect()
        };
        let mut children: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for task in &self.tasks {
            for parent in parents_of(task) {
                children.entry(parent).or_default().push(task.id.clone());
            }
        }
        let tasks = self.tasks.iter().map(|task| {
            let kids = children.get(&task.id).map_or(&[][..], Vec::as_slice);
            format!(
                r#"{{"name":"{}","id":"{}","parents":{},"children":{},"inputFiles":{},"outputFiles":{}}}"#,
                task.name,
                task.id,
                list(&parents_of(task)),
                list(kids),
                list(&task.inputs),
                list(&task.outputs)
            )
        });
        let files = self.files.iter();
        let files = files.map(|(name, size)| format!(r#"{{"id":"{name}","sizeInBytes":{size}}}"#));
        let runs = self.tasks.iter().map(|task| {
            format!(
                r#"{{"id":"{}","runtimeInSeconds":{:.3},"coreCount":1}}"#,
                task.id, task.seconds
            )
        });
        let mut text = String::from("{\"name\":\"mosaic\",\"schemaVersion\":\"1.5\",\n");
        text.push_str(
            "\"description\":\"A mosaic of the sky in three colours, made up by xtask\",\n",
        );
        text.push_str("\"workflow\":{\"specification\":{\n");
        let _ = write!(text, "\"tasks\":[\n{}],\n", lines(tasks));
        let _ = write!(text, "\"files\":[\n{}]}},\n", lines(files));
        text.push_str("\"execution\":{\"makespanInSeconds\":0,");
        text.push_str("\"executedAt\":\"2026-01-01T00:00:00Z\",\n");
        let _ = write!(text, "\"tasks\":[\n{}],\n\"machines\":[]}}}}}}\n", lines(runs));
        text
    }
}

fn lines(rows: impl Iterator<Item = String>) -> String {
    rows.collect::<Vec<_>>().join(",\n")
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", quoted.join(","))
}
