//! Foreign text made safe for a terminal. The rules are in `lens/src/terminal_text.rs`.

pub(crate) use lens::terminal_text::{shown, shown_lines};
