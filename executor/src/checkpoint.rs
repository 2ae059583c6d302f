/*!
The checkpoint directory of a command that gets a signal before an end.

What the command writes there outlives its attempt. The directory is packed when the command ends
without success or after its signal, and when the command asks for it. The packed bytes are the
state of the task's next turn; the next attempt finds the files in its own directory.
*/

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use proto::limits::TURN_STATE_BYTES_MAX;
use proto::wire;
use proto::work::Launch;

use crate::archive::{self, Modes};
use crate::error::reason;

/// The variable with the path of the directory.
pub const VARIABLE: &str = "STARLING_CHECKPOINT";
/// The directory, in the task's directory.
const DIRECTORY: &str = ".starling-checkpoint";
/// The first bytes of a state that is a packed directory.
const HEAD: &[u8] = b"starling checkpoint 1\n";

/// Packs a checkpoint directory as the state of a turn. An empty directory is a state as well.
///
/// # Errors
/// The directory cannot be read, or is too large for a state: one line.
pub fn pack(directory: &Path) -> Result<Vec<u8>, String> {
    let mut state = BoundedState { bytes: HEAD.to_vec(), is_full: false };
    let packed = archive::pack_directory(directory, &mut state);
    if state.is_full {
        return Err(format!(
            "the checkpoint directory is too large: packed it may have {TURN_STATE_BYTES_MAX} \
             bytes, with up to 1,023 bytes for each file beside its content"
        ));
    }
    packed.map_err(|error| format!("cannot pack the checkpoint directory: {error}"))?;
    Ok(state.bytes)
}

/// True if the state of a turn is a packed checkpoint directory.
pub(crate) fn is_packed(state: &[u8]) -> bool {
    state.starts_with(HEAD)
}

/// True if the command of this attempt has a checkpoint directory.
fn has_directory(launch: &Launch) -> bool {
    let Some(wire::spec::Body::Command(command)) = &launch.spec.body else { return false };
    command.notice.is_some() && launch.gang.is_empty()
}

/// Makes the directory of an attempt, with the files of the last checkpoint.
pub(crate) fn make(
    launch: &Launch,
    directory: &Path,
    state: Option<&[u8]>,
) -> Result<Option<PathBuf>, String> {
    if !has_directory(launch) {
        return Ok(None);
    }
    let failed = |error: &io::Error| format!("cannot make the checkpoint: {}", reason(error));
    let path = directory.join(DIRECTORY);
    std::fs::create_dir(&path).map_err(|error| failed(&error))?;
    if let Some(packed) = state.and_then(|state| state.strip_prefix(HEAD)) {
        archive::unpack(packed, &path, Modes::Packed).map_err(|error| failed(&error))?;
    }
    Ok(Some(path))
}

/// The checkpoint of a command that has ended. `None`: there is none, or the last one is the same.
pub(crate) fn of_ended(launch: &Launch, directory: &Path) -> Option<Result<Vec<u8>, String>> {
    if !has_directory(launch) {
        return None;
    }
    let path = directory.join(DIRECTORY);
    let before = launch.resume.as_ref().and_then(|resume| resume.state.as_deref());
    let before = before.filter(|state| is_packed(state));
    let is_empty = std::fs::read_dir(&path).ok()?.next().is_none();
    if is_empty && before.is_none() {
        return None;
    }
    match pack(&path) {
        Ok(packed) if before == Some(&*packed) => None,
        packed => Some(packed),
    }
}

/// Takes no more bytes than a state may have.
struct BoundedState {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for BoundedState {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > TURN_STATE_BYTES_MAX {
            self.is_full = true;
            return Err(io::Error::other("it is too large"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::{Attempt, Span, TaskId};

    use super::*;

    fn launch(signal: bool, state: Option<Vec<u8>>) -> Launch {
        let notice = signal.then(Box::default);
        let command = wire::Command { notice, ..wire::Command::default() };
        let body = Some(wire::spec::Body::Command(command));
        let of_state = |state| wire::Resume { state: Some(state), ..wire::Resume::default() };
        Launch {
            task: TaskId::new(1, 2),
            attempt: Attempt(1),
            slot: 0,
            spec: wire::Spec { body, ..wire::Spec::default() }.into(),
            settings: wire::JobSettings::default().into(),
            entry: 0,
            duration: Span::ZERO,
            output_sizes: Vec::new(),
            name: String::new(),
            payload: Vec::new().into(),
            inputs: Vec::new(),
            resume: state.map(|state| of_state(state).into()),
            granted: None,
            gang: Vec::new(),
        }
    }

    #[test]
    fn the_next_attempt_has_the_files_of_the_former_one() {
        let (first, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = make(&launch(true, None), first.path(), None).unwrap().unwrap();
        assert_eq!(of_ended(&launch(true, None), first.path()), None, "nothing was written");
        fs::create_dir(path.join("parts")).unwrap();
        fs::write(path.join("parts/1"), "one").unwrap();
        let state = of_ended(&launch(true, None), first.path()).unwrap().unwrap();
        assert!(is_packed(&state));

        let resumed = launch(true, Some(state.clone()));
        let path = make(&resumed, next.path(), Some(&state)).unwrap().unwrap();
        assert_eq!(fs::read_to_string(path.join("parts/1")).unwrap(), "one");
        assert_eq!(of_ended(&resumed, next.path()), None, "it is as it was");
        fs::remove_dir_all(path.join("parts")).unwrap();
        let emptied = of_ended(&resumed, next.path()).unwrap().unwrap();
        assert!(is_packed(&emptied) && emptied.len() < state.len());
    }

    #[test]
    fn only_a_command_with_a_signal_has_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(make(&launch(false, None), directory.path(), None).unwrap(), None);
        assert_eq!(of_ended(&launch(false, None), directory.path()), None);
        // A state of 'commit --state' is no packed directory.
        let path = make(&launch(true, None), directory.path(), Some(b"n = 7")).unwrap().unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }

    #[test]
    fn a_checkpoint_has_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("big");
        fs::write(&file, vec![7; TURN_STATE_BYTES_MAX - 4096]).unwrap();
        assert!(pack(directory.path()).unwrap().len() <= TURN_STATE_BYTES_MAX);
        fs::write(&file, vec![7; TURN_STATE_BYTES_MAX]).unwrap();
        let error = pack(directory.path()).unwrap_err();
        assert!(error.contains("too large") && error.contains("65536"), "{error}");
    }
}
