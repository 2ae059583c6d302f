//! Reads lists, and makes the commands of their entries on a thread of its own.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Read};

use tokio::sync::mpsc;
use verb::errors::Failure;
use verb::output::say;
use verb::units::number_of;
use workloads::lists::{
    self, Entry, Items, ListError, Product, SeenCommands, Source, SourceKind, Template,
};

use super::ListArgs;
use crate::cluster::submit::entries;

/// The maximum size of all entries of lists that are in memory.
const LIST_MEMORY_BYTES_MAX: usize = 64 << 20;

/// The maximum size of one argument of a command (`MAX_ARG_STRLEN` of Linux), and of all together.
const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// Commands that are made before they are wanted.
const MADE_AHEAD: usize = 256;

/// An entry that runs.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) number: u64,
    pub(super) values: Vec<String>,
    pub(super) argv: Vec<String>,
    /// The command as one line.
    pub(super) command: String,
}

type Values = Box<dyn Iterator<Item = Result<Vec<String>, ListError>> + Send>;

/// All entries of a run.
pub(super) struct List {
    entries: Product<Values>,
    template: Template,
    program: String,
}

fn refuse(error: ListError) -> Failure {
    Failure::refused(error.text).hint(error.hint)
}

/// A refused command line.
fn misused(error: ListError) -> Failure {
    Failure::usage(error.text).hint(error.hint)
}

/// An open file of entries.
fn items(path: &str, null: bool) -> Result<Items<BufReader<Box<dyn Read + Send>>>, Failure> {
    let (from, name): (Box<dyn Read + Send>, &str) = match path {
        "-" => (Box::new(std::io::stdin()), "standard input"),
        path => {
            let file = File::open(path).map_err(|e| Failure::file(path.as_ref(), &e))?;
            if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
                return Err(Failure::refused(format!("{path}: it is a directory"))
                    .hint(format!("name its files: ::: {}/*", path.trim_end_matches('/'))));
            }
            (Box::new(file), path)
        }
    };
    Ok(Items::new(BufReader::with_capacity(64 << 10, from), name, null))
}

/// The sources of a command line: files of flags come first. Standard input is read if there is no
/// other list and the command has a replacement string.
fn sources(args: &ListArgs, split: lists::Split) -> Result<Vec<Source>, Failure> {
    let of_file = |file: &String| Source { kind: SourceKind::File(file.clone()), is_linked: false };
    let files = args.arg_file.iter().chain(&args.each_line);
    let mut sources: Vec<Source> = files.map(of_file).collect();
    if let Some(values) = entries::read(None, args.from_json.as_deref())? {
        sources.push(Source { kind: SourceKind::Values(values), is_linked: false });
    }
    sources.extend(split.sources);
    if sources.is_empty() && lists::has_replacement(&split.command) {
        if std::io::stdin().is_terminal() {
            return Err(Failure::usage("the command has a replacement string, and no list")
                .hint("give a list: ::: a b c, or -a FILE, or one on standard input"));
        }
        sources.push(of_file(&"-".to_owned()));
    }
    let is_stdin = |source: &&Source| source.kind == SourceKind::File("-".to_owned());
    if sources.iter().filter(is_stdin).count() > 1 {
        return Err(Failure::usage("standard input is one list, and named twice"));
    }
    Ok(sources)
}

/// Reads a list whole, as one of several.
fn in_memory(source: &Source, null: bool, room: &mut usize) -> Result<Vec<String>, Failure> {
    let file = match &source.kind {
        SourceKind::Values(values) => return Ok(values.clone()),
        SourceKind::File(file) => file,
    };
    let mut values = Vec::new();
    for item in items(file, null)? {
        let item = item.map_err(refuse)?;
        *room = room.checked_sub(item.len() + size_of::<String>()).ok_or_else(|| {
            let most = LIST_MEMORY_BYTES_MAX >> 20;
            Failure::refused(format!("{file}: the lists after the first have more than {most} MiB"))
                .hint("let the longest list be the first one")
        })?;
        values.push(item);
    }
    Ok(values)
}

/// Lists with their linked lists: each element has one value of each.
fn zipped(lists: Vec<Vec<String>>) -> Result<Vec<Vec<String>>, Failure> {
    let length = lists[0].len();
    if let Some(other) = lists.iter().map(Vec::len).find(|&other| other != length) {
        return Err(Failure::usage(format!("a linked list has {other} values for {length}"))
            .hint("linked lists (:::+) are paired value by value"));
    }
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    Ok((0..length).map(|_| lists.iter_mut().filter_map(Iterator::next).collect()).collect())
}

impl List {
    pub(super) fn open(args: &ListArgs) -> Result<Self, Failure> {
        let split = lists::split(&args.command).map_err(misused)?;
        let command = split.command.clone();
        let sources = sources(args, split)?;
        let template = Template::parse(&command, sources.len()).map_err(misused)?;
        let mut groups = sources.chunk_by(|_, next| next.is_linked);
        let mut room = LIST_MEMORY_BYTES_MAX;
        let mut whole = |group: &[Source]| {
            let lists = group.iter().map(|source| in_memory(source, args.null, &mut room));
            zipped(lists.collect::<Result<_, _>>()?)
        };
        let first: Values = match groups.next() {
            // A command without a list runs once.
            None => Box::new(std::iter::once(Ok(Vec::new()))),
            Some([Source { kind: SourceKind::File(file), .. }]) => {
                Box::new(items(file, args.null)?.map(|item| item.map(|item| vec![item])))
            }
            Some(group) => Box::new(whole(group)?.into_iter().map(Ok)),
        };
        let rest = groups.map(whole).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { entries: Product::new(first, rest), template, program: command[0].clone() })
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// The entries that run, one at a time; nothing follows an error.
    pub(super) fn into_works(
        self,
        mut seen: Option<SeenCommands>,
    ) -> impl Iterator<Item = Result<Work, Failure>> {
        let Self { mut entries, template, .. } = self;
        let mut has_failed = false;
        std::iter::from_fn(move || {
            while !has_failed {
                let Some(entry) = entries.next() else {
                    let rest = seen.take().map_or(0, |seen| seen.rest());
                    if rest > 0 {
                        let rows = number_of(rest as u64, "row");
                        say(&format!("warning: the job log has {rows} beyond the end of the list"));
                    }
                    return None;
                };
                let work = entry.map_err(refuse).and_then(|entry| work(&template, entry));
                let skips = work.and_then(|work| match &mut seen {
                    Some(seen) => {
                        let skips = seen.may_skip(work.number, &work.command).map_err(refuse)?;
                        Ok((work, skips))
                    }
                    None => Ok((work, false)),
                });
                match skips {
                    Ok((_, true)) => {}
                    Ok((work, false)) => return Some(Ok(work)),
                    Err(failure) => {
                        has_failed = true;
                        return Some(Err(failure));
                    }
                }
            }
            None
        })
    }

    /// Reads on a thread, so that a slow list does not stop the run.
    pub(super) fn start(self, seen: Option<SeenCommands>) -> mpsc::Receiver<Result<Work, Failure>> {
        let (sender, receiver) = mpsc::channel(MADE_AHEAD);
        std::thread::spawn(move || {
            for work in self.into_works(seen) {
                // The run has ended.
                if sender.blocking_send(work).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

/// The command of an entry, unless no system would start it.
fn work(template: &Template, entry: Entry) -> Result<Work, Failure> {
    let argv = template.argv(&entry);
    let Entry { number, values } = entry;
    let too_long = |what: &str, bytes: usize, most: usize| {
        let text = format!("entry {number}: {what} {bytes} bytes; at most {most} can be passed");
        Err(Failure::refused(text).hint("write long texts into files, and list the files"))
    };
    if let Some(long) = argv.iter().find(|word| word.len() > ARGUMENT_BYTES_MAX) {
        return too_long("an argument has", long.len(), ARGUMENT_BYTES_MAX);
    }
    let bytes = argv.iter().map(|word| word.len() + 1).sum();
    if bytes > ARGUMENTS_BYTES_MAX {
        return too_long("the arguments have", bytes, ARGUMENTS_BYTES_MAX);
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Failure::refused(format!("entry {number}: an argument has a NUL byte")));
    }
    let command = lists::command_line(&argv);
    Ok(Work { number, values, argv, command })
}
