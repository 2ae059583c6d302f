//! The input files of a command, where it expects them, in the order in which the user listed them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proto::wire;
use proto::work::{Launch, LaunchInput};

use crate::error::reason;
use crate::executor::Shared;
use crate::expand::{Named, Scope};
use crate::objects::ObjectError;
use crate::stage::{node, place, text_of};

/// An attempt whose inputs are linked into its directory.
pub(crate) struct Staging<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) launch: &'a Launch,
    pub(crate) bare: &'a Scope<'a>,
    pub(crate) directory: &'a Path,
    pub(crate) submit_dir: &'a Path,
}

/// What was linked so far: the file behind each name in the directory.
type Linked = HashMap<PathBuf, PathBuf>;

impl Staging<'_> {
    /// Links all inputs; each with its key and path, as the user listed them.
    pub(crate) fn link(&self) -> Result<Vec<Named>, String> {
        let spec = &self.launch.spec;
        let mut linked = Linked::default();
        let mut named = Vec::with_capacity(self.launch.inputs.len() + spec.externals.len());
        let mut inputs: Vec<&LaunchInput> = self.launch.inputs.iter().collect();
        // Slots beyond the declared inputs only order.
        inputs.retain(|input| (input.slot as usize) < spec.inputs.len());
        inputs.sort_by_key(|input| input.slot);
        let mut inputs = inputs.into_iter().peekable();
        for external in &spec.externals {
            // Before it come as many inputs as its place says, or all of them.
            let before = external.place.checked_sub(1).unwrap_or(u32::MAX);
            while let Some(input) = inputs.next_if(|input| input.slot < before) {
                named.push(self.link_input(input, &mut linked)?);
            }
            named.push(self.link_external(external, &mut linked)?);
        }
        for input in inputs {
            named.push(self.link_input(input, &mut linked)?);
        }
        Ok(named)
    }

    /// Puts the object of a parent where the task expects it.
    fn link_input(&self, input: &LaunchInput, linked: &mut Linked) -> Result<Named, String> {
        let declared = &self.launch.spec.inputs[input.slot as usize];
        let file = self.bare.expand(&declared.file)?;
        let target = place(self.directory, &file)?;
        let source = self.shared.objects.file(input.object).map_err(|error| match error {
            ObjectError::Absent(object) => {
                format!("input file '{file}': {object} is not on {}", node(self.shared))
            }
            _ => format!("input file '{file}': {error}"),
        })?;
        // A hard link stays whole even if the object is dropped meanwhile.
        let link = || {
            fs::hard_link(&source, &target).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Err(error),
                _ => symlink(&source, &target),
            })
        };
        once(linked, &file, &target, &source, link)?;
        Ok(Named { key: declared.key.clone(), path: text_of(&target) })
    }

    /// Links a file that exists before the run.
    fn link_external(
        &self,
        external: &wire::External,
        linked: &mut Linked,
    ) -> Result<Named, String> {
        let source = self.submit_dir.join(self.bare.expand(&external.path)?);
        let shown = source.display();
        if let Err(error) = fs::metadata(&source) {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => format!("input file '{shown}' does not exist"),
                _ => format!("input file '{shown}': {}", reason(&error)),
            });
        }
        let file = match self.bare.expand(&external.file)? {
            file if file.is_empty() => {
                source.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            file => file,
        };
        let target = place(self.directory, &file)?;
        if external.staged {
            // It is here already, and stays for as long as the task has its link.
            let key = (self.launch.task, self.launch.attempt);
            let staged = self.shared.staged.get(&source, || self.shared.is_wanted(key));
            let staged = staged.map_err(|error| format!("input file '{shown}': {error}"))?;
            once(linked, &file, &target, &source, || fs::hard_link(staged.path(), &target))?;
        } else {
            once(linked, &file, &target, &source, || symlink(&source, &target))?;
        }
        Ok(Named { key: external.key.clone(), path: text_of(&target) })
    }
}

/// Links a file. One file may have several roles: it is linked once for each name.
fn once(
    linked: &mut Linked,
    file: &str,
    target: &Path,
    source: &Path,
    link: impl FnOnce() -> io::Result<()>,
) -> Result<(), String> {
    if linked.get(target).is_some_and(|earlier| earlier == source) {
        return Ok(());
    }
    link().map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("two inputs have this name; give one another: {{ file = \"{file}\", as = \"...\" }}")
            }
            _ => reason(&error),
        };
        format!("input file '{file}': {why}")
    })?;
    linked.insert(target.to_owned(), source.to_owned());
    Ok(())
}
