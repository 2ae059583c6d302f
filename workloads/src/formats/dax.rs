//! Reads Pegasus' DAX, abstract workflows in XML (versions 2 and 3): `job` with its `runtime` and
//! the files it `uses`, and `child` and `parent` for further dependencies.
//!
//! [`super::file_graph`] defines the meaning of tasks and files. A job's runtime, cores and memory
//! may also be profiles: `pegasus` `runtime`, `cores`, `memory` (MB), `condor` `request_cpus`,
//! `request_memory` (MB).

use std::io::{BufRead, Read};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::formats::detect::LoadOptions;
use crate::formats::error::Problem;
use crate::formats::file_graph::FileGraph;
use crate::formats::recorded;
use crate::formats::text::{Misread, Source, shown};
use crate::graph::Graph;
use crate::limits::WORKFLOW_WORD_BYTES_MAX;

/// The nesting depth of elements in an XML file.
const XML_DEPTH_MAX: usize = 256;

pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
) -> Result<Graph, Misread> {
    let mut xml = quick_xml::Reader::from_reader(BoundedReader::new(source));
    xml.config_mut().expand_empty_elements = true;
    let mut reader = Reader::new();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let at = xml.get_ref().place();
        xml.get_mut().begin_event();
        let event = xml.read_event_into(&mut bytes);
        match event {
            Err(quick_xml::Error::Io(error)) => {
                return Err(Misread::syntax(at.0, at.1, error.to_string()));
            }
            Err(error) => {
                return Err(Misread::syntax(at.0, at.1, format!("broken XML: {error}")));
            }
            Ok(Event::Start(element)) => reader.start(&element, at)?,
            Ok(Event::End(element)) => reader.end(element.local_name().as_ref())?,
            Ok(Event::Text(text)) => reader.text.push_str(&text.xml10_content()),
            Ok(Event::Eof) => break,
            Ok(_) => {}
        }
    }
    if reader.depth > 0 {
        let (line, column) = xml.get_ref().place();
        let reason = "broken XML: the text ends inside an element";
        return Err(Misread::syntax(line, column, reason));
    }
    if !reader.has_root {
        return Err(not_a_dax().into());
    }
    let own = reader.name.take().filter(|own| !own.is_empty());
    reader.graph.finish(own.as_deref().unwrap_or(name), options)
}

fn not_a_dax() -> Problem {
    Problem::NotAWorkflow { reason: "the XML is no adag".to_owned() }
}

type Place = (usize, usize);

/// The workflow read so far, and the position in the text.
struct Reader {
    graph: FileGraph,
    name: Option<String>,
    has_root: bool,
    depth: usize,
    /// The open elements.
    job: Option<u32>,
    child: Option<u32>,
    profile: Option<(String, Place)>,
    /// The text since the last element began.
    text: String,
}

impl Reader {
    fn new() -> Self {
        Self {
            graph: FileGraph::new(),
            name: None,
            has_root: false,
            depth: 0,
            job: None,
            child: None,
            profile: None,
            text: String::new(),
        }
    }

    fn start(&mut self, element: &BytesStart<'_>, at: Place) -> Result<(), Misread> {
        self.text.clear();
        self.depth += 1;
        if self.depth > XML_DEPTH_MAX {
            let reason = format!("more than {} elements in one another", XML_DEPTH_MAX);
            return Err(Misread::syntax(at.0, at.1, reason));
        }
        let attributes = Attributes { element, at };
        let name = element.local_name();
        let name: &str = name.as_ref();
        if self.depth == 1 {
            if name != "adag" {
                return Err(Misread::at(at.0, at.1, not_a_dax()));
            }
            self.has_root = true;
            self.name = attributes.get("name")?;
            return Ok(());
        }
        match name {
            "job" => self.job(&attributes)?,
            "dag" | "dax" => {
                let reason = format!("'{name}' is a workflow inside a workflow, which is not read");
                return Err(Misread::syntax(at.0, at.1, reason));
            }
            "uses" => self.uses(&attributes)?,
            "child" => {
                let child = attributes.required("ref")?;
                self.child = Some(self.graph.mention(&child, Some(at)));
            }
            "parent" => {
                let parent = attributes.required("ref")?;
                let parent = self.graph.mention(&parent, Some(at));
                let outside = || Misread::syntax(at.0, at.1, "a 'parent' outside of a 'child'");
                self.graph.declare(parent, self.child.ok_or_else(outside)?);
            }
            "profile" if self.job.is_some() => {
                let space = attributes.get("namespace")?.unwrap_or_default();
                let key = attributes.get("key")?.unwrap_or_default();
                self.profile = Some((format!("{space}.{key}").to_lowercase(), at));
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), Misread> {
        self.depth -= 1;
        match name {
            "job" => self.job = None,
            "child" => self.child = None,
            "profile" => {
                if let (Some(job), Some((key, at))) = (self.job, self.profile.take()) {
                    self.profile(job, &key, at)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn job(&mut self, job: &Attributes<'_, '_>) -> Result<(), Misread> {
        let id = job.required("id")?;
        let task = self.graph.mention(&id, Some(job.at));
        self.graph.define(task).map_err(|problem| Misread::at(job.at.0, job.at.1, problem))?;
        let kind = job.get("name")?.unwrap_or_default();
        self.graph.recorded(task).kind = self.graph.kind(&kind);
        if let Some(runtime_s) = job.number("runtime")? {
            self.graph.recorded(task).duration_ns = duration_ns(&id, runtime_s, job.at)?;
        }
        self.job = Some(task);
        Ok(())
    }

    fn uses(&mut self, uses: &Attributes<'_, '_>) -> Result<(), Misread> {
        // Outside of jobs they belong to transformations.
        let Some(task) = self.job else { return Ok(()) };
        let file = match uses.get("file")? {
            Some(file) => file,
            None => uses.required("name")?,
        };
        let size = recorded::size_bytes(uses.number("size")?.unwrap_or(0.0))
            .map_err(|reason| Misread::syntax(uses.at.0, uses.at.1, reason))?;
        let link = uses.get("link")?.unwrap_or_default().to_lowercase();
        match link.as_str() {
            "input" => self.graph.read(task, &file, Some(size)),
            "output" => self.graph.write(task, &file, Some(size)),
            "inout" => {
                self.graph.read(task, &file, Some(size));
                self.graph.write(task, &file, Some(size));
            }
            // Programs and checkpoints are neither.
            "none" | "checkpoint" | "" => {}
            other => {
                let reason = format!("link '{}': it is input, output or inout", shown(other));
                return Err(Misread::syntax(uses.at.0, uses.at.1, reason));
            }
        }
        Ok(())
    }

    fn profile(&mut self, job: u32, key: &str, at: Place) -> Result<(), Misread> {
        let known = ["pegasus.runtime", "pegasus.cores", "pegasus.memory"];
        if !known.contains(&key) && !key.starts_with("condor.request_") {
            return Ok(());
        }
        let wrong = || {
            let text = shown(self.text.trim());
            Misread::syntax(at.0, at.1, format!("profile {key}: '{text}' is no number"))
        };
        let value: f64 = self.text.trim().parse().map_err(|_| wrong())?;
        let recorded = self.graph.recorded(job);
        match key {
            "pegasus.runtime" => recorded.duration_ns = duration_ns("", value, at)?,
            "pegasus.cores" | "condor.request_cpus" => recorded.cores = recorded::slots(value),
            "pegasus.memory" | "condor.request_memory" => {
                recorded.memory_bytes = recorded::size_bytes(value * 1e6)
                    .map_err(|reason| Misread::syntax(at.0, at.1, reason))?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn duration_ns(task: &str, runtime_s: f64, at: Place) -> Result<u64, Misread> {
    recorded::duration_ns(runtime_s).map_err(|reason| {
        let problem = match task {
            "" => Problem::Syntax { reason },
            task => Problem::BadTask { task: task.to_owned(), reason, hint: None },
        };
        Misread::at(at.0, at.1, problem)
    })
}

/// The attributes of an element's start.
struct Attributes<'e, 'x> {
    element: &'e BytesStart<'x>,
    at: Place,
}

impl Attributes<'_, '_> {
    fn syntax(&self, reason: impl Into<String>) -> Misread {
        Misread::syntax(self.at.0, self.at.1, reason)
    }

    fn get(&self, name: &str) -> Result<Option<String>, Misread> {
        let broken = |error: &dyn std::fmt::Display| self.syntax(format!("broken XML: {error}"));
        for attribute in self.element.attributes() {
            let attribute = attribute.map_err(|error| broken(&error))?;
            if attribute.key.as_ref() == name {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                return Ok(Some(value.map_err(|error| broken(&error))?.into_owned()));
            }
        }
        Ok(None)
    }

    fn required(&self, name: &str) -> Result<String, Misread> {
        let missing = || {
            let element = self.element.local_name();
            let element: &str = element.as_ref();
            self.syntax(format!("'{}' has no '{name}'", shown(element)))
        };
        self.get(name)?.ok_or_else(missing)
    }

    fn number(&self, name: &str) -> Result<Option<f64>, Misread> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        let wrong = || self.syntax(format!("{name} is a number, not '{}'", shown(&text)));
        number.ok_or_else(wrong).map(Some)
    }
}

/// Tracks the position of the next byte, and bounds the memory of a single piece of XML.
struct BoundedReader<'s, 'a> {
    source: &'s mut Source<'a>,
    line: usize,
    column: usize,
    taken: usize,
}

impl<'s, 'a> BoundedReader<'s, 'a> {
    fn new(source: &'s mut Source<'a>) -> Self {
        Self { source, line: 1, column: 1, taken: 0 }
    }

    fn place(&self) -> Place {
        (self.line, self.column)
    }

    fn begin_event(&mut self) {
        self.taken = 0;
    }
}

impl Read for BoundedReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for BoundedReader<'_, '_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let limit = WORKFLOW_WORD_BYTES_MAX;
        if self.taken > limit {
            let reason = format!("one element or text is longer than {limit} bytes");
            return Err(std::io::Error::other(reason));
        }
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        let bytes = &self.source.buffer()[..count];
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count();
        let start = bytes.iter().rposition(|byte| *byte == b'\n');
        // Columns count characters, so continuation bytes do not count.
        let characters = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        self.column = match start {
            Some(start) => 1 + characters(&bytes[start + 1..]),
            None => self.column + characters(bytes),
        };
        self.taken += count;
        self.source.consume(count);
    }
}
