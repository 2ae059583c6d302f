//! `starling example` and `starling init`: workflows to begin with.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, meant};

/// A workflow that the program carries.
struct Example {
    name: &'static str,
    about: &'static str,
    /// The command that runs it, in the directory above its own.
    run: &'static str,
    files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($dir:literal: $($file:literal),*) => {
        &[$(($file, include_str!(concat!("../../../examples/", $dir, "/", $file)))),*]
    };
}

const EXAMPLES: [Example; 4] = [
    Example {
        name: "word-count",
        about: "counts words of six pages with ordinary commands, and merges the counts",
        run: "starling run word-count/workflow.toml --output results",
        files: files!("word-count": "workflow.toml", "page-1.txt", "page-2.txt", "page-3.txt",
                      "page-4.txt", "page-5.txt", "page-6.txt"),
    },
    Example {
        name: "readers",
        about: "reads outputs of several tasks, and proves with checksums that they are right",
        run: "starling run readers/readers.toml --nodes 2 --output results",
        files: files!("readers": "readers.toml"),
    },
    Example {
        name: "spawn",
        about: "tasks that make tasks and await them; tasks that go on after a failure",
        run: "starling up && starling submit --wait -- sh $PWD/spawn/fib.sh 7 $PWD/fib",
        files: files!("spawn": "fib.sh", "steps.sh"),
    },
    Example {
        name: "mosaic",
        about: "a recorded workflow of the field (WfFormat), run as sleeps",
        run: "starling run mosaic/mosaic.json --nodes 4 --scale 0.01",
        files: &[("mosaic.json", include_str!("../../../examples/mosaic.json"))],
    },
];

/// The file that `starling init` writes.
const INIT: &str = include_str!("init.toml");
const INIT_NAME: &str = "workflow.toml";

#[derive(Args, Debug)]
pub(crate) struct ExampleArgs {
    /// The example that is written; without a name all are listed
    name: Option<String>,
    /// The directory in which the directory of the example is made
    #[arg(short, long, value_name = "DIR", default_value = ".", requires = "name")]
    output: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// The file
    #[arg(default_value = INIT_NAME)]
    file: PathBuf,
}

#[derive(Serialize)]
struct ExampleRow {
    name: &'static str,
    about: &'static str,
    run: &'static str,
}

#[derive(Serialize)]
struct Written {
    files: Vec<String>,
    run: String,
}

/// The names of the examples, and what they show.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXAMPLES.iter().map(|example| (example.name, example.about))
}

pub(crate) fn example(context: &Context, args: &ExampleArgs) -> Done {
    let Some(name) = &args.name else { return list(context) };
    let Some(example) = EXAMPLES.iter().find(|example| example.name == name) else {
        let known: Vec<&str> = EXAMPLES.iter().map(|example| example.name).collect();
        return Err(Failure::refused(format!("there is no example '{name}'"))
            .hint(meant(name, &known, "examples")));
    };
    let dir = args.output.join(example.name);
    fs::create_dir(&dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::refused(format!("{} exists already", dir.display()))
                .hint("write the example into another directory with --output")
        }
        _ => Failure::file(&dir, &error),
    })?;
    let mut files = Vec::new();
    for (file, text) in example.files {
        let path = dir.join(file);
        write_new(&path, text)?;
        files.push(path.display().to_string());
    }
    let run = match args.output == Path::new(".") {
        true => example.run.to_owned(),
        false => format!("cd {} && {}", args.output.display(), example.run),
    };
    tell(context, Written { files, run })
}

fn list(context: &Context) -> Done {
    let row = |it: &Example| ExampleRow { name: it.name, about: it.about, run: it.run };
    if context.output.json {
        #[derive(Serialize)]
        struct Examples {
            examples: Vec<ExampleRow>,
        }
        context.output.json(&Examples { examples: EXAMPLES.iter().map(row).collect() })?;
    } else {
        let cells = |it: &Example| vec![it.name.to_owned(), it.about.to_owned()];
        let rows: Vec<_> = EXAMPLES.iter().map(cells).collect();
        context.output.table(&["example", "about"], &rows)?;
        context.output.note("'starling example NAME' writes one");
    }
    Ok(Exit::Ok)
}

pub(crate) fn init(context: &Context, args: &InitArgs) -> Done {
    write_new(&args.file, INIT)?;
    let file = args.file.display().to_string();
    tell(context, Written { run: format!("starling run {file}"), files: vec![file] })
}

/// Writes a file that must not exist.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::refused(format!("{} exists already", path.display())).hint("name another file")
        }
        _ => Failure::file(path, &error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::file(path, &error))
}

fn tell(context: &Context, written: Written) -> Done {
    if context.output.json {
        context.output.json(&written)?;
        return Ok(Exit::Ok);
    }
    for file in &written.files {
        context.output.line(file)?;
    }
    context.output.note(&format!("run it: {}", written.run));
    Ok(Exit::Ok)
}
