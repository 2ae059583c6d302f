//! The screen of `starling top`: keys, and drawing.

use std::sync::Arc;
use std::time::Duration;

use proto::JobId;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, TableState};
use tokio::sync::mpsc;
use verb::errors::{Done, Exit, Failure, plain};

use super::Feed;
use super::tables::{Table, Tables, View};
use crate::web::live::Overview;
use crate::web::record_rows::Progress;

/// Wider texts are cut, except in the last column.
const COLUMN_MAX: usize = 24;
const KEYS: &str = " 1-6 view · arrows select · Enter kinds of a job · / filter · q quit";

/// The state of the screen.
struct Screen {
    view: View,
    selected: TableState,
    filter: String,
    is_typing: bool,
    job: Option<JobId>,
    overview: Option<Arc<Overview>>,
    kinds: Vec<Progress>,
    /// The reason why the figures are old.
    problem: Option<String>,
}

/// Restores the terminal also after an error.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws until the user quits.
pub(super) async fn show(feed: &Feed, every: Duration) -> Done {
    let failed = |error: std::io::Error| Failure::refused(format!("terminal: {}", plain(&error)));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let _restored = Restored;
    let mut keys = keys();
    let mut screen = Screen::new();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Keys are read also while a silent node is waited for.
    let (sender, mut looks) = mpsc::channel(1);
    let mut is_looking = false;
    loop {
        let mut is_due = false;
        tokio::select! {
            _ = ticks.tick() => is_due = true,
            Some(found) = looks.recv() => {
                is_looking = false;
                let job = screen.see(found);
                is_due = screen.lacks_kinds() && job != screen.job;
            }
            key = keys.recv() => match key {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if screen.press(key) {
                        return Ok(Exit::Ok);
                    }
                    is_due = screen.lacks_kinds();
                }
                // The terminal has another size.
                Some(_) => {}
                None => return Ok(Exit::Ok),
            },
        }
        if is_due && !is_looking {
            is_looking = true;
            // A job is summed up only while its kinds are shown.
            let job = screen.job.filter(|_| screen.view == View::Kinds);
            let (feed, sender) = (feed.clone(), sender.clone());
            tokio::spawn(async move { sender.send(Found::look(&feed, job).await).await });
        }
        terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
    }
}

/// The answers of the nodes at one moment.
struct Found {
    overview: Result<Arc<Overview>, Failure>,
    kinds: Option<(JobId, Result<Vec<Progress>, Failure>)>,
}

impl Found {
    async fn look(feed: &Feed, job: Option<JobId>) -> Self {
        let overview = feed.look().await;
        let kinds = match job {
            Some(job) => Some((job, feed.kinds(job).await)),
            None => None,
        };
        Self { overview, kinds }
    }
}

/// The keys, from a thread: reading them blocks.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Screen {
    fn new() -> Self {
        Self {
            view: View::Overview,
            selected: TableState::default().with_selected(0),
            filter: String::new(),
            is_typing: false,
            job: None,
            overview: None,
            kinds: Vec::new(),
            problem: None,
        }
    }

    fn lacks_kinds(&self) -> bool {
        self.view == View::Kinds && self.kinds.is_empty() && self.job.is_some()
    }

    /// Takes the answers over. Returns the job that was summed up.
    fn see(&mut self, found: Found) -> Option<JobId> {
        match found.overview {
            Ok(overview) => {
                self.overview = Some(overview);
                self.problem = None;
            }
            Err(failure) => self.problem = Some(failure.message),
        }
        let (job, kinds) = found.kinds?;
        // Another job may have been selected meanwhile.
        if self.job == Some(job) {
            match kinds {
                Ok(kinds) => self.kinds = kinds,
                Err(failure) => self.problem = Some(failure.message),
            }
        }
        Some(job)
    }

    /// Handles a key; true to quit.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(digit @ '1'..='6') => self.go(View::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => {
                let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
                self.go(View::ALL[(at + 1) % View::ALL.len()]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.selected.select_previous(),
            KeyCode::PageDown => self.selected.scroll_down_by(10),
            KeyCode::PageUp => self.selected.scroll_up_by(10),
            KeyCode::Enter if matches!(self.view, View::Overview | View::Jobs | View::Stalls) => {
                let table = self.table();
                let row = self.selected.selected().and_then(|at| table.rows.get(at));
                self.job = row.and_then(|row| row[0].parse().ok()).map(JobId);
                self.kinds.clear();
                self.go(View::Kinds);
            }
            _ => {}
        }
        false
    }

    fn go(&mut self, view: View) {
        self.view = view;
        self.selected.select_first();
        if view == View::Kinds && self.job.is_none() {
            let newest = self.overview.as_ref().and_then(|it| it.jobs.last());
            self.job = newest.and_then(|job| job.job.parse().ok()).map(JobId);
        }
    }

    /// The rows of the view that have the filter's text.
    fn table(&self) -> Table {
        let Some(overview) = &self.overview else { return Table::default() };
        let tables = Tables { overview, kinds: &self.kinds, job: self.job };
        let mut table = tables.of(self.view);
        let has = |row: &Vec<String>| row.iter().any(|cell| cell.contains(&self.filter));
        table.rows.retain(has);
        table
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let table = self.table();
        let mut head = match &self.overview {
            Some(overview) => Tables { overview, kinds: &self.kinds, job: self.job }.summary(),
            None => vec!["waiting for the nodes".to_owned()],
        };
        head.extend(self.problem.iter().map(|text| format!("! {text}")));
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(head.len() as u16 + 1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .split(frame.area());
        let names = View::ALL.iter().enumerate().map(|(number, view)| {
            let mark = if *view == self.view { ['[', ']'] } else { [' ', ' '] };
            format!("{}{} {}{}", mark[0], number + 1, view.name(), mark[1])
        });
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(names.collect::<Vec<_>>().join(" "), bold), areas[0]);
        let lines = head.into_iter().map(|text| match text.starts_with('!') {
            true => Line::styled(text, Style::new().fg(Color::Red)),
            false => Line::raw(text),
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), areas[1]);
        self.draw_table(frame, areas[2], &table);
        let foot = match (self.is_typing, self.filter.is_empty()) {
            (true, _) => format!(" filter: {}_  (Enter keeps it, Esc removes it)", self.filter),
            (false, false) => format!(" filter: {} ·{KEYS}", self.filter),
            (false, true) => KEYS.to_owned(),
        };
        frame.render_widget(Line::styled(foot, Style::new().add_modifier(Modifier::DIM)), areas[3]);
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: ratatui::layout::Rect, table: &Table) {
        if table.rows.is_empty() {
            let text = if self.filter.is_empty() { table.empty } else { "no row has this text" };
            frame.render_widget(Paragraph::new(text), area);
            return;
        }
        let mut widths: Vec<Constraint> = table
            .widths()
            .into_iter()
            .map(|width| Constraint::Length(width.min(COLUMN_MAX) as u16))
            .collect();
        // The last column takes what is left: names and reasons are long.
        widths.pop();
        widths.push(Constraint::Fill(1));
        let rows =
            table.rows.iter().map(|row| Row::new(row.iter().map(|it| Cell::from(it.as_str()))));
        let header = Row::new(table.header.iter().copied().map(Cell::from));
        let header = header.style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        let widget = ratatui::widgets::Table::new(rows, widths)
            .header(header)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(widget, area, &mut self.selected);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(table: &Table) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut screen = Screen::new();
        let draw = |frame: &mut Frame<'_>| {
            let area = frame.area();
            screen.draw_table(frame, area, table);
        };
        terminal.draw(draw).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_long_name_does_not_hide_figures_on_80_columns() {
        let name = "bag:tasks=600,duration=uniform(50ms,400ms) and more".to_owned();
        let cells = ["12", "cancelled", "##########", "1,000,000", "999,999", "0", "1", "16.84 s"];
        let row = cells.iter().map(|it| (*it).to_owned()).chain([name]).collect();
        let header =
            vec!["job", "state", "ended", "tasks", "done", "failed", "skipped", "time", "name"];
        let table = Table { title: String::new(), header, rows: vec![row], empty: "nothing" };
        let text = drawn(&table);
        for cell in cells {
            assert!(text.contains(cell), "{cell} in {text}");
        }
        assert!(text.contains("bag:"), "{text}");
    }

    #[test]
    fn a_view_without_rows_gives_the_reason() {
        let table = Table { empty: "every job makes progress", ..Table::default() };
        assert!(drawn(&table).contains("every job makes progress"));
    }

    #[test]
    fn keys_select_views_and_filters() {
        let mut screen = Screen::new();
        let mut press = |code| screen.press(KeyEvent::from(code));
        assert!(!press(KeyCode::Char('4')));
        assert!(!press(KeyCode::Char('/')) && !press(KeyCode::Char('q')));
        assert!(!press(KeyCode::Enter) && press(KeyCode::Char('q')), "q is typed, then quits");
        assert_eq!((screen.view, screen.filter.as_str()), (View::Nodes, "q"));
    }
}
