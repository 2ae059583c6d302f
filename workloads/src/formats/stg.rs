//! Reads Standard Task Graphs, the text files of Kasahara's set (T. Tobita, H. Kasahara: A standard
//! task graph set for fair evaluation of multiprocessor scheduling algorithms, 2002).
//!
//! The first line has the number of tasks, and optionally the number of processors. Each further
//! line is one task: its number, its time, its number of predecessors, and these. In the form with
//! communication each predecessor is followed by its cost. `#` begins a comment. A time unit counts
//! as a second, and a unit of cost as the bytes of one second on a link of 1 Gbit/s. The number of
//! tasks may or may not include the two dummy tasks at both ends.

use hashbrown::HashMap;

use crate::formats::detect::LoadOptions;
use crate::formats::error::Problem;
use crate::formats::recorded;
use crate::formats::text::{Field, Line, Lines, Misread, Source};
use crate::formats::weighted::{Weight, Weighted};
use crate::graph::Graph;

/// The bytes of one unit of communication: a second of a link of 1 Gbit/s.
pub(crate) const COST_BYTES: f64 = 125e6;
/// Tasks beyond the declared ones: the entry and the exit.
const DUMMIES: u64 = 2;

/// An edge from a task with a later line.
#[derive(Debug)]
struct PendingEdge {
    number: u64,
    edge: usize,
    line: usize,
    column: usize,
}

#[derive(Debug, Default)]
struct Reader {
    graph: Weighted,
    tasks: HashMap<u64, u32, foldhash::fast::FixedState>,
    awaited: Vec<PendingEdge>,
}

pub(crate) fn read(source: &mut Source<'_>, name: &str, _: &LoadOptions) -> Result<Graph, Misread> {
    let mut lines = Lines::new(source);
    let mut reader = Reader::default();
    let mut declared = None;
    while let Some(line) = lines.next()? {
        let line = Line { text: line.text.split('#').next().unwrap_or(""), ..line };
        let Some(first) = line.words().next() else { continue };
        match declared {
            None => declared = Some(header(line, first)?),
            Some(_) => reader.task(line, first)?,
        }
    }
    let declared = declared.unwrap_or(0);
    let rows = reader.tasks.len() as u64;
    if rows < declared || rows > declared.saturating_add(DUMMIES) {
        let reason = format!("{declared} tasks are declared, {rows} follow");
        return Err(Misread::syntax(lines.line().max(1), 1, reason));
    }
    reader.finish(name)
}

fn header(line: Line<'_>, first: Field<'_>) -> Result<u64, Misread> {
    let tasks = first.whole("the number of tasks")?;
    if let Some(third) = line.words().nth(2) {
        let reason = "the first line has the number of tasks, and at most that of processors";
        return Err(third.syntax(reason));
    }
    Ok(tasks)
}

impl Reader {
    fn task(&mut self, line: Line<'_>, first: Field<'_>) -> Result<(), Misread> {
        let number = first.whole("a task's number")?;
        let task = self.graph.durations_ns.len() as u32;
        if self.tasks.insert(number, task).is_some() {
            return Err(first.fault(Problem::DuplicateTask { task: number.to_string() }));
        }
        let mut words = line.words().skip(1);
        let missing = |what: &str| {
            line.syntax(line.text.len() + 1, format!("task '{number}': {what} is missing"))
        };
        let time = words.next().ok_or_else(|| missing("its time"))?;
        let duration_ns = recorded::duration_ns(time.number("a task's time")?)
            .map_err(|reason| time.fault(bad(number, reason)))?;
        let count = words.next().ok_or_else(|| missing("the number of its predecessors"))?;
        let predecessors = count.whole("the number of predecessors")?;
        let rest: Vec<Field<'_>> = words.collect();
        // Each predecessor may be followed by its cost.
        let step = match rest.len() as u64 {
            given if given == predecessors => 1,
            given if predecessors.checked_mul(2) == Some(given) => 2,
            given => {
                let reason = format!("{predecessors} predecessors are declared, {given} follow");
                return Err(count.fault(bad(number, reason)));
            }
        };
        self.graph.durations_ns.push(duration_ns);
        self.graph.names.number(&number.to_string());
        for pair in rest.chunks(step) {
            let bytes = match pair.get(1) {
                Some(cost) => cost_bytes(*cost)?,
                None => 0,
            };
            self.edge(pair[0], task, bytes)?;
        }
        Ok(())
    }

    fn edge(&mut self, parent: Field<'_>, child: u32, bytes: u64) -> Result<(), Misread> {
        let number = parent.whole("a predecessor")?;
        let edge = self.graph.edges.len();
        let known = self.tasks.get(&number).copied();
        if known == Some(child) {
            let task = number.to_string();
            return Err(parent.fault(crate::graph::error::GraphError::SelfLoop { task }));
        }
        if known.is_none() {
            self.awaited.push(PendingEdge {
                number,
                edge,
                line: parent.line,
                column: parent.column,
            });
        }
        self.graph.edges.push(Weight { parent: known.unwrap_or(u32::MAX), child, bytes });
        Ok(())
    }

    fn finish(mut self, name: &str) -> Result<Graph, Misread> {
        for awaited in &self.awaited {
            let edge = &mut self.graph.edges[awaited.edge];
            edge.parent = self.tasks.get(&awaited.number).copied().ok_or_else(|| {
                let task = self.graph.names.name(edge.child).to_owned();
                let parent = awaited.number.to_string();
                let problem = Problem::UnknownTask { task, parent, list: "its predecessors" };
                Misread::at(awaited.line, awaited.column, problem)
            })?;
        }
        drop((self.tasks, self.awaited));
        Ok(self.graph.finish(name, "stg")?)
    }
}

fn cost_bytes(cost: Field<'_>) -> Result<u64, Misread> {
    let units = cost.number("a cost of communication")?;
    recorded::size_bytes(units * COST_BYTES).map_err(|reason| cost.syntax(reason))
}

fn bad(number: u64, reason: String) -> Problem {
    Problem::BadTask { task: number.to_string(), reason, hint: None }
}
