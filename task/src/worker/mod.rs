/*!
The worker: it speaks the protocol of `docs/worker-protocol.md` with the node that started it.

One thread, with a large stack, runs all calls, because a call that waits for its calls runs them
inside of its wait. `line` is the way to the node, `run` runs one call.
*/

pub(crate) mod line;
pub(crate) mod run;
mod wire;

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

use line::{Ended, Line};

/// The stack of the thread that runs calls. Pages that no call has used take no memory.
const STACK_BYTES: usize = 256 << 20;
/// A node has sent no records.
const GARBAGE_EXIT: i32 = 70;

/// A call uses the line only between its own steps, so no borrow lasts while a function runs.
pub(crate) type Shared = Rc<RefCell<Line>>;

/// Serves calls until the node ends the worker.
pub(crate) fn serve() -> ! {
    let thread = std::thread::Builder::new().name("calls".to_owned()).stack_size(STACK_BYTES);
    let served = thread.spawn(serve_here);
    let code = served.map_or(1, |thread| thread.join().unwrap_or(1));
    std::process::exit(code)
}

fn serve_here() -> i32 {
    let Some([input, output, words]) = descriptors() else {
        return told("a worker is started by a node, with its descriptors", 1);
    };
    let line = match Line::new(input, output, words) {
        Ok(line) => Rc::new(RefCell::new(line)),
        Err(error) => return told(&error.to_string(), 1),
    };
    run::keep_panics();
    match serve_line(&line) {
        Ended::Stopped => 0,
        Ended::Garbage(text) => told(&format!("garbage from the node: {text}"), GARBAGE_EXIT),
    }
}

fn serve_line(line: &Shared) -> Ended {
    loop {
        let next = line.borrow_mut().next(None);
        let (kind, body) = match next {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(ended) => return ended,
        };
        if let Err(ended) = handle(line, kind, &body) {
            return ended;
        }
    }
}

/// Does what a record asks, also inside of the wait of a call.
pub(crate) fn handle(line: &Shared, kind: u8, body: &[u8]) -> Result<(), Ended> {
    match kind {
        wire::CALL => run::call(line, wire::call(body)?),
        _ => line.borrow_mut().take(kind, body),
    }
}

/// As [`handle`], inside of the wait of a call.
pub(crate) fn on_top(line: &Shared, waiting: u64, kind: u8, body: &[u8]) -> Result<(), Ended> {
    if kind != wire::CALL {
        return handle(line, kind, body);
    }
    let start_ns = {
        let mut line = line.borrow_mut();
        // What was printed so far is of the call that waits.
        line.printed(waiting);
        line.start_ns()
    };
    handle(line, kind, body)?;
    line.borrow_mut().name_call(waiting, start_ns);
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the node shows it")]
fn told(text: &str, code: i32) -> i32 {
    eprintln!("starling worker: {text}");
    code
}

/// The descriptors 3, 4 and 5, closed in programs that calls start.
#[expect(unsafe_code, reason = "descriptors that this program did not open have no owner here")]
fn descriptors() -> Option<[File; 3]> {
    let owned = [3, 4, 5].map(|number| {
        // SAFETY: the node opens them for the worker, and nothing else in this process has them:
        // a worker is recognised by its arguments before the program opens a file.
        File::from(unsafe { OwnedFd::from_raw_fd(number) })
    });
    for file in &owned {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC).ok()?;
    }
    Some(owned)
}
