//! The limit on open files. A node raises its own limit; its commands keep the user's.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for the tables of the log, a socket for each client and peer, and the objects in
/// transfer.
const WANTED: u64 = 65_536;

/// The soft limit before this process has raised it.
static OF_USER: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of this process, which is 1024 on most systems, as far as the hard limit
/// allows. Keeps a higher limit, or one that cannot be raised.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    OF_USER.get_or_init(|| current);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// The user's soft limit, if this process has raised its own.
pub(crate) fn of_user() -> Option<u64> {
    OF_USER.get().copied().flatten()
}

/// Lowers the soft limit of this process, and of the programs that it starts.
pub(crate) fn lower_limit(files: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current > files) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_and_never_shrinks() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let enough = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
        let low = current.map_or(512, |current| current.min(512));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), maximum }).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(enough));
        let more = maximum.map_or(enough + 1, |maximum| maximum.min(enough + 1));
        setrlimit(Resource::Nofile, Rlimit { current: Some(more), maximum }).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(more));
    }
}
