//! Delivers the input files of a command, in the order in which the user listed them.

pub(crate) mod deliver;
mod mounts;
pub(crate) mod shared_files;
pub(crate) mod shared_trees;
mod survey;
mod tree;
pub(crate) mod uploads;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::wire::{self, OutputForm};
use proto::work::{Launch, LaunchInput};
use proto::{ObjectId, entry};

use crate::commands::expand::Named;
use crate::commands::names;
use crate::commands::stage::{is_output, place, text_of};
use crate::error::reason;
use crate::executor::Shared;
use crate::inputs::deliver::{Delivered, InputTarget, LinkedInput};
use crate::inputs::shared_files::SharedFile;
use crate::inputs::shared_trees::TreeCopy;

/// A copy on this node that an attempt needs.
#[derive(Debug)]
#[expect(dead_code, reason = "its drop counts")]
pub(crate) enum Brought {
    File(SharedFile),
    Tree(Arc<TreeCopy>),
}

/// An attempt with inputs that are linked into its directory.
pub(crate) struct Staging<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) launch: &'a Launch,
    pub(crate) directory: &'a Path,
    pub(crate) submit_dir: &'a Path,
}

/// The files in the directory so far.
#[derive(Default)]
struct Placed {
    /// By place in the directory: the source of the file, and its paths there.
    files: HashMap<PathBuf, (Source, Vec<PathBuf>)>,
    guards: Vec<LinkedInput>,
}

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Object(ObjectId),
    File(PathBuf),
}

impl Staging<'_> {
    /// Links all inputs; returns each with its key and path, in the user's order.
    pub(crate) fn link(&self) -> Result<(Vec<Named>, Vec<LinkedInput>), String> {
        let spec = &self.launch.spec;
        let mut placed = Placed::default();
        let mut named = Vec::with_capacity(self.launch.inputs.len() + spec.externals.len());
        let mut inputs: Vec<&LaunchInput> = self.launch.inputs.iter().collect();
        // Slots beyond the declared inputs only order.
        inputs.retain(|input| (input.slot as usize) < spec.inputs.len());
        inputs.sort_by_key(|input| input.slot);
        let mut inputs = inputs.into_iter().peekable();
        for external in &spec.externals {
            // As many inputs precede it as its place says, or all of them.
            let before = external.place.checked_sub(1).unwrap_or(u32::MAX);
            while let Some(input) = inputs.next_if(|input| input.slot < before) {
                named.extend(self.link_input(input, &mut placed)?);
            }
            named.extend(self.link_external(external, &mut placed)?);
        }
        for input in inputs {
            named.extend(self.link_input(input, &mut placed)?);
        }
        Ok((named, placed.guards))
    }

    /// Delivers the object of a parent.
    fn link_input(
        &self,
        input: &LaunchInput,
        placed: &mut Placed,
    ) -> Result<impl Iterator<Item = Named> + use<>, String> {
        let (shared, directory) = (self.shared, self.directory);
        let declared = &self.launch.spec.inputs[input.slot as usize];
        let file = entry::expand(&declared.file, self.launch.entry);
        let object = input.object;
        let target = match declared.form() {
            OutputForm::Files => directory.join(names::inside(&file)?),
            OutputForm::File | OutputForm::Directory => place(directory, &file)?,
        };
        let is_output = is_output(self.launch, &file);
        let at = InputTarget { name: &file, target: &target, is_output };
        let paths = placed.once(&target, Source::Object(object), || match declared.form() {
            OutputForm::File => deliver::object(shared, object, &at),
            OutputForm::Directory => deliver::directory(shared, object, &at),
            OutputForm::Files => deliver::files(shared, object, &file, directory),
        })?;
        Ok(named(&declared.key, paths))
    }

    /// Delivers a file that exists before the run.
    fn link_external(
        &self,
        external: &wire::External,
        placed: &mut Placed,
    ) -> Result<impl Iterator<Item = Named> + use<>, String> {
        let source = self.submit_dir.join(entry::expand(&external.path, self.launch.entry));
        let shown = source.display();
        let metadata = fs::metadata(&source).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("input file '{shown}' does not exist"),
            _ => format!("input file '{shown}': {}", reason(&error)),
        })?;
        let file = match entry::expand(&external.file, self.launch.entry) {
            file if file.is_empty() => {
                source.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            file => file,
        };
        let target = place(self.directory, &file)?;
        let is_output = is_output(self.launch, &file);
        let at = InputTarget { name: &file, target: &target, is_output };
        let key = (self.launch.task, self.launch.attempt);
        let is_wanted = || self.shared.is_wanted(key);
        let paths = placed.once(&target, Source::File(source.clone()), || {
            let guard = if external.staged {
                // The staged copy is here already, and stays while the task has its link.
                let staged = self.shared.staged.get(&source, is_wanted);
                let staged = staged.map_err(|error| format!("input file '{shown}': {error}"))?;
                deliver::staged(self.shared, &source, &staged.path(), &at)?
            } else {
                deliver::external(self.shared, &source, &metadata, &at, is_wanted)?
            };
            Ok((vec![target.clone()], guard))
        })?;
        Ok(named(&external.key, paths))
    }
}

fn named(key: &str, paths: Vec<PathBuf>) -> impl Iterator<Item = Named> + use<> {
    let key = key.to_owned();
    paths.into_iter().map(move |path| Named { key: key.clone(), path: text_of(&path) })
}

impl Placed {
    /// Delivers a file. One file may have several roles: it is delivered once for each name.
    fn once(
        &mut self,
        target: &Path,
        source: Source,
        put: impl FnOnce() -> Result<Delivered, String>,
    ) -> Result<Vec<PathBuf>, String> {
        if let Some((_, paths)) = self.files.get(target).filter(|(earlier, _)| *earlier == source) {
            return Ok(paths.clone());
        }
        let (paths, guard) = put()?;
        self.guards.extend(guard);
        self.files.insert(target.to_owned(), (source, paths.clone()));
        Ok(paths)
    }
}
