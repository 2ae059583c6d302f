//! Reads graphs in the DOT language, with SimGrid's interpretation. A node's `size` is its work in
//! flops, and an edge's `size` the bytes that it carries. An edge without a size, or with one of 0
//! or less, only orders. A node that only edges mention has no work.
//!
//! The whole language is supported (subgraphs, chains, defaults, comments, quoting). Other
//! attributes of nodes and edges are ignored.

mod tokens;

use std::mem::take;

use crate::formats::detect::LoadOptions;
use crate::formats::deviations::Deviations;
use crate::formats::error::Problem;
use crate::formats::recorded;
use crate::formats::text::{Misread, Source, shown};
use crate::formats::weighted::{Weight, Weighted};
use crate::graph::Graph;
use crate::graph::error::GraphError;
use crate::limits::{GRAPH_EDGES_MAX, GRAPH_TASKS_MAX};
use tokens::{Token, Tokens};

/// The nesting depth of subgraphs in a DOT file.
const DOT_DEPTH_MAX: usize = 64;

pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
    deviations: &Deviations,
) -> Result<Graph, Misread> {
    let mut parser = Parser {
        deviations,
        tokens: Tokens::new(source)?,
        graph: Weighted::default(),
        is_sized: Vec::new(),
        is_strict: false,
        flops_per_s: options.flops_per_s,
    };
    let own = parser.graph()?;
    let name = own.filter(|own| !own.is_empty() && own != "G").unwrap_or_else(|| name.to_owned());
    let mut graph = parser.graph;
    if parser.is_strict {
        let mut edges = take(&mut graph.edges);
        edges.sort_by_key(|edge| (edge.child, edge.parent));
        edges.dedup_by_key(|edge| (edge.child, edge.parent));
        graph.edges = edges;
    }
    Ok(graph.finish(&name, "dot")?)
}

/// The default attributes of nodes and edges in a (sub)graph.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    node_size: Option<f64>,
    edge_size: Option<f64>,
}

/// A size attribute and its position.
#[derive(Clone, Copy, Debug)]
struct Size {
    value: f64,
    line: usize,
    column: usize,
}

struct Parser<'s, 'a> {
    deviations: &'s Deviations,
    tokens: Tokens<'s, 'a>,
    graph: Weighted,
    /// Nodes with a size of their own.
    is_sized: Vec<bool>,
    is_strict: bool,
    flops_per_s: f64,
}

impl Parser<'_, '_> {
    /// Reads the whole text and returns the graph's name, if it has one.
    fn graph(&mut self) -> Result<Option<String>, Misread> {
        self.is_strict = self.keyword("strict")?;
        if !self.keyword("digraph")? {
            let hint = "a task graph is a digraph, its edges are written ->";
            return Err(self.tokens.expected(&format!("'digraph' ({hint})")));
        }
        let mut name = None;
        if self.tokens.is(Token::Id) {
            name = Some(self.tokens.take_text()?);
        }
        self.punctuation(Token::Open)?;
        self.statements(Defaults::default(), 0)?;
        if !self.tokens.is(Token::End) {
            return Err(self.tokens.expected("the end of the text"));
        }
        Ok(name)
    }

    fn keyword(&mut self, word: &str) -> Result<bool, Misread> {
        let found = self.tokens.is_word(word);
        if found {
            self.tokens.advance()?;
        }
        Ok(found)
    }

    fn punctuation(&mut self, token: Token) -> Result<(), Misread> {
        if !self.tokens.is(token) {
            return Err(self.tokens.expected(token.shown()));
        }
        self.tokens.advance()
    }

    /// Reads statements up to and including the closing brace. Returns the nodes that were named.
    fn statements(&mut self, mut defaults: Defaults, depth: usize) -> Result<Vec<u32>, Misread> {
        if depth > DOT_DEPTH_MAX {
            let reason = format!("more than {} subgraphs in one another", DOT_DEPTH_MAX);
            return Err(self.tokens.syntax(reason));
        }
        let mut named = Vec::new();
        loop {
            if self.tokens.is(Token::Close) {
                self.tokens.advance()?;
                return Ok(named);
            }
            if self.tokens.is(Token::Semicolon) {
                self.tokens.advance()?;
            } else if self.tokens.is_word("graph") {
                self.tokens.advance()?;
                self.drawing_attributes()?;
            } else if self.tokens.is_word("node") {
                self.tokens.advance()?;
                let size = self.attributes()?;
                defaults.node_size = size.map(|size| size.value).or(defaults.node_size);
            } else if self.tokens.is_word("edge") {
                self.tokens.advance()?;
                let size = self.attributes()?;
                defaults.edge_size = size.map(|size| size.value).or(defaults.edge_size);
            } else {
                self.chain(defaults, depth, &mut named)?;
            }
        }
    }

    /// A node, a subgraph, an attribute of the graph, or edges between any of the first two.
    fn chain(
        &mut self,
        defaults: Defaults,
        depth: usize,
        named: &mut Vec<u32>,
    ) -> Result<(), Misread> {
        let is_subgraph = self.tokens.is(Token::Open) || self.tokens.is_word("subgraph");
        let Some(mut from) = self.end(defaults, depth)? else { return Ok(()) };
        if !self.tokens.is(Token::Arrow) {
            if !is_subgraph {
                let size = self.attributes()?;
                self.size_of_node(from[0], size)?;
            }
            named.append(&mut from);
            return Ok(());
        }
        let first_edge = self.graph.edges.len();
        while self.tokens.is(Token::Arrow) {
            let (line, column) = self.tokens.place();
            self.tokens.advance()?;
            let to = self.end(defaults, depth)?;
            let to = to.ok_or_else(|| self.tokens.expected("a node"))?;
            if from.len().saturating_mul(to.len()) > GRAPH_EDGES_MAX {
                return Err(Misread::at(line, column, GraphError::TooManyEdges));
            }
            for (&parent, &child) in
                from.iter().flat_map(|from| to.iter().map(move |to| (from, to)))
            {
                if parent == child {
                    let task = self.graph.names.name(parent).to_owned();
                    return Err(Misread::at(line, column, GraphError::SelfLoop { task }));
                }
                if self.graph.edges.len() >= GRAPH_EDGES_MAX {
                    return Err(Misread::at(line, column, GraphError::TooManyEdges));
                }
                self.graph.edges.push(Weight { parent, child, bytes: 0 });
            }
            named.append(&mut from);
            from = to;
        }
        named.append(&mut from);
        let size = self.attributes()?;
        self.size_of_edges(first_edge, size, defaults)
    }

    /// One end of an edge: a node or a subgraph. `None` after `name = value`.
    fn end(&mut self, defaults: Defaults, depth: usize) -> Result<Option<Vec<u32>>, Misread> {
        if self.keyword("subgraph")? && self.tokens.is(Token::Id) {
            self.tokens.advance()?;
        }
        if self.tokens.is(Token::Open) {
            self.tokens.advance()?;
            let mut named = self.statements(defaults, depth + 1)?;
            named.sort_unstable();
            named.dedup();
            return Ok(Some(named));
        }
        if !self.tokens.is(Token::Id) {
            return Err(self.tokens.expected("a node, an edge or '}'"));
        }
        let (line, column) = self.tokens.place();
        let name = self.tokens.take_text()?;
        if self.tokens.is(Token::Equals) {
            self.tokens.advance()?;
            self.value()?;
            return Ok(None);
        }
        // A port only positions an edge in a drawing.
        while self.tokens.is(Token::Colon) {
            self.tokens.advance()?;
            self.value()?;
        }
        let node = self.node(&name, defaults).map_err(|e| Misread::at(line, column, e))?;
        Ok(Some(vec![node]))
    }

    fn node(&mut self, name: &str, defaults: Defaults) -> Result<u32, Problem> {
        let (node, is_new) = self.graph.names.number(name);
        if is_new {
            if self.graph.names.len() > GRAPH_TASKS_MAX {
                return Err(GraphError::TooManyTasks.into());
            }
            let duration_ns = self.duration_ns(defaults.node_size.unwrap_or(0.0));
            let duration_ns = duration_ns.map_err(|reason| Problem::Syntax { reason })?;
            self.graph.durations_ns.push(duration_ns);
            self.is_sized.push(false);
        }
        Ok(node)
    }

    fn duration_ns(&self, flops: f64) -> Result<u64, String> {
        recorded::duration_ns(flops / self.flops_per_s)
            .map_err(|reason| format!("{flops} flops at {} flop/s: {reason}", self.flops_per_s))
    }

    fn size_of_node(&mut self, node: u32, size: Option<Size>) -> Result<(), Misread> {
        let Some(size) = size else { return Ok(()) };
        let duration_ns = self.duration_ns(size.value);
        let at = node as usize;
        let task = || self.graph.names.name(node).to_owned();
        let bad = |reason| Problem::BadTask { task: task(), reason, hint: None };
        let duration_ns =
            duration_ns.map_err(|reason| Misread::at(size.line, size.column, bad(reason)))?;
        if self.is_sized[at] && self.graph.durations_ns[at] != duration_ns {
            let problem = Problem::DuplicateTask { task: task() };
            return Err(Misread::at(size.line, size.column, problem));
        }
        self.is_sized[at] = true;
        self.graph.durations_ns[at] = duration_ns;
        Ok(())
    }

    fn size_of_edges(
        &mut self,
        first: usize,
        size: Option<Size>,
        defaults: Defaults,
    ) -> Result<(), Misread> {
        let value = size.map(|size| size.value).or(defaults.edge_size).unwrap_or(0.0);
        let (line, column) =
            size.map_or_else(|| self.tokens.place(), |size| (size.line, size.column));
        let bytes = recorded::size_bytes(value.max(0.0))
            .map_err(|reason| Misread::syntax(line, column, reason))?;
        for edge in &mut self.graph.edges[first..] {
            edge.bytes = bytes;
        }
        Ok(())
    }

    /// Attributes of the whole graph: its `size` is that of the drawing.
    fn drawing_attributes(&mut self) -> Result<(), Misread> {
        self.attribute_lists(|_, _, _| Ok(()))
    }

    /// Reads any number of `[name=value, ...]` and returns the size.
    fn attributes(&mut self) -> Result<Option<Size>, Misread> {
        let (mut size, deviations) = (None, self.deviations);
        self.attribute_lists(|name, text, at| {
            if name == "size" {
                size = size_of(text, at, deviations)?.or(size);
            }
            Ok(())
        })?;
        Ok(size)
    }

    /// Calls `take` for each attribute with its name, its value, and the value's position.
    fn attribute_lists(
        &mut self,
        mut take: impl FnMut(&str, &str, (usize, usize)) -> Result<(), Misread>,
    ) -> Result<(), Misread> {
        while self.tokens.is(Token::OpenList) {
            self.tokens.advance()?;
            while !self.tokens.is(Token::CloseList) {
                if !self.tokens.is(Token::Id) {
                    return Err(self.tokens.expected("an attribute or ']'"));
                }
                let name = self.tokens.take_text()?;
                if self.tokens.is(Token::Equals) {
                    self.tokens.advance()?;
                    let at = self.tokens.place();
                    let text = self.value()?;
                    take(&name, &text, at)?;
                }
                if self.tokens.is(Token::Comma) || self.tokens.is(Token::Semicolon) {
                    self.tokens.advance()?;
                }
            }
            self.tokens.advance()?;
        }
        Ok(())
    }

    fn value(&mut self) -> Result<String, Misread> {
        if self.tokens.is(Token::Id) {
            self.tokens.take_text()
        } else {
            Err(self.tokens.expected("a value"))
        }
    }
}

/// The size of a task or an edge. A size of two numbers belongs to a shape in the drawing.
fn size_of(
    text: &str,
    (line, column): (usize, usize),
    deviations: &Deviations,
) -> Result<Option<Size>, Misread> {
    let is_pair = text.trim_end_matches('!').split(',').count() == 2;
    if is_pair && text.trim_end_matches('!').split(',').all(|part| number(part).is_ok()) {
        deviations
            .pass((line, column), "a size of two numbers is that of a drawing, not of work")?;
        return Ok(None);
    }
    let value = number(text).map_err(|reason| Misread::syntax(line, column, reason))?;
    Ok(Some(Size { value, line, column }))
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("a size is a number, not '{}'", shown(text)))
}
