//! The tokens of the DOT language, one at a time.

use std::io::BufRead as _;

use crate::formats::text::{Misread, Source, shown};
use crate::limits::WORKFLOW_WORD_BYTES_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A name, number, quoted text or HTML; see [`Tokens::take_text`].
    Id,
    Open,
    Close,
    OpenList,
    CloseList,
    Equals,
    Comma,
    Semicolon,
    Colon,
    Plus,
    Arrow,
    /// `--`, an edge without a direction.
    Line,
    End,
}

impl Token {
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Id => "a name",
            Self::Open => "'{'",
            Self::Close => "'}'",
            Self::OpenList => "'['",
            Self::CloseList => "']'",
            Self::Equals => "'='",
            Self::Comma => "','",
            Self::Semicolon => "';'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Arrow => "'->'",
            Self::Line => "'--'",
            Self::End => "the end of the text",
        }
    }
}

/// The current token and the text after it.
pub(super) struct Tokens<'s, 'a> {
    source: &'s mut Source<'a>,
    /// The position of the next byte.
    line: usize,
    column: usize,
    token: Token,
    /// The position of the token.
    token_line: usize,
    token_column: usize,
    text: Vec<u8>,
    is_bare: bool,
}

impl<'s, 'a> Tokens<'s, 'a> {
    /// Reads up to the first token.
    pub(super) fn new(source: &'s mut Source<'a>) -> Result<Self, Misread> {
        let mut tokens = Self {
            source,
            line: 1,
            column: 1,
            token: Token::End,
            token_line: 1,
            token_column: 1,
            text: Vec::new(),
            is_bare: false,
        };
        tokens.advance()?;
        Ok(tokens)
    }

    pub(super) fn is(&self, token: Token) -> bool {
        self.token == token
    }

    /// True if the token is this keyword, in any case and unquoted.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.token == Token::Id && self.is_bare && self.text.eq_ignore_ascii_case(word.as_bytes())
    }

    /// The position of the token.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.token_line, self.token_column)
    }

    pub(super) fn syntax(&self, reason: impl Into<String>) -> Misread {
        Misread::syntax(self.token_line, self.token_column, reason)
    }

    pub(super) fn expected(&self, what: &str) -> Misread {
        let found = match self.token {
            Token::Id => format!("'{}'", shown(&String::from_utf8_lossy(&self.text))),
            other => other.shown().to_owned(),
        };
        self.syntax(format!("expected {what}, found {found}"))
    }

    /// Returns the text of the token, which is an [`Token::Id`], and advances. Quoted texts joined
    /// by `+` are one text.
    pub(super) fn take_text(&mut self) -> Result<String, Misread> {
        let mut text = self.own_text()?;
        let was_quoted = !self.is_bare;
        self.advance()?;
        while was_quoted && self.token == Token::Plus {
            self.advance()?;
            if self.token != Token::Id {
                return Err(self.expected("a quoted text"));
            }
            text.push_str(&self.own_text()?);
            self.advance()?;
        }
        Ok(text)
    }

    fn own_text(&self) -> Result<String, Misread> {
        let text = std::str::from_utf8(&self.text);
        text.map(str::to_owned).map_err(|_| self.syntax("the text is not UTF-8"))
    }

    /// Advances to the next token.
    pub(super) fn advance(&mut self) -> Result<(), Misread> {
        self.skip_blanks()?;
        (self.token_line, self.token_column) = (self.line, self.column);
        self.text.clear();
        self.is_bare = false;
        let Some(byte) = self.peek()? else {
            self.token = Token::End;
            return Ok(());
        };
        let single = match byte {
            b'{' => Some(Token::Open),
            b'}' => Some(Token::Close),
            b'[' => Some(Token::OpenList),
            b']' => Some(Token::CloseList),
            b'=' => Some(Token::Equals),
            b',' => Some(Token::Comma),
            b';' => Some(Token::Semicolon),
            b':' => Some(Token::Colon),
            b'+' => Some(Token::Plus),
            _ => None,
        };
        if let Some(token) = single {
            self.next()?;
            self.token = token;
            return Ok(());
        }
        self.token = Token::Id;
        match byte {
            b'"' => self.quoted(),
            b'<' => self.html(),
            b'-' => self.dash(),
            byte if is_word(byte) || byte == b'.' => self.word(),
            byte => {
                let found = char::from(byte).escape_debug().to_string();
                Err(self.syntax(format!("'{found}' has no meaning here")))
            }
        }
    }

    fn dash(&mut self) -> Result<(), Misread> {
        self.next()?;
        match self.peek()? {
            Some(b'>') => {
                self.next()?;
                self.token = Token::Arrow;
                Ok(())
            }
            Some(b'-') => {
                self.next()?;
                self.token = Token::Line;
                Ok(())
            }
            Some(byte) if byte.is_ascii_digit() || byte == b'.' => {
                self.text.push(b'-');
                self.word()
            }
            _ => Err(self.syntax("a single '-' has no meaning here")),
        }
    }

    fn word(&mut self) -> Result<(), Misread> {
        self.is_bare = true;
        while let Some(byte) = self.peek()?.filter(|byte| is_word(*byte) || *byte == b'.') {
            self.keep(byte)?;
            self.next()?;
        }
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), Misread> {
        self.next()?;
        loop {
            match self.next()? {
                None => return Err(self.syntax("the quotation has no end")),
                Some(b'"') => return Ok(()),
                Some(b'\\') => match self.next()? {
                    Some(b'"') => self.keep(b'"')?,
                    // A line that continues on the next one.
                    Some(b'\n') | None => {}
                    Some(other) => {
                        self.keep(b'\\')?;
                        self.keep(other)?;
                    }
                },
                Some(byte) => self.keep(byte)?,
            }
        }
    }

    fn html(&mut self) -> Result<(), Misread> {
        let mut depth = 0_u32;
        loop {
            match self.next()? {
                None => return Err(self.syntax("the HTML text has no end")),
                Some(b'<') => depth += 1,
                Some(b'>') => depth -= 1,
                Some(_) => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn keep(&mut self, byte: u8) -> Result<(), Misread> {
        if self.text.len() >= WORKFLOW_WORD_BYTES_MAX {
            let limit = WORKFLOW_WORD_BYTES_MAX;
            return Err(self.syntax(format!("the text is longer than {limit} bytes")));
        }
        self.text.push(byte);
        Ok(())
    }

    /// Skips white space, both kinds of comments, and lines that begin with `#`.
    fn skip_blanks(&mut self) -> Result<(), Misread> {
        while let Some(byte) = self.peek()? {
            match byte {
                b'#' if self.column == 1 => self.skip_line()?,
                b'/' => {
                    let (line, column) = (self.line, self.column);
                    self.next()?;
                    match self.next()? {
                        Some(b'/') => self.skip_line()?,
                        Some(b'*') => self.skip_comment(line, column)?,
                        _ => return Err(Misread::syntax(line, column, "'/' begins no comment")),
                    }
                }
                byte if byte.is_ascii_whitespace() => {
                    self.next()?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn skip_line(&mut self) -> Result<(), Misread> {
        while self.next()?.is_some_and(|byte| byte != b'\n') {}
        Ok(())
    }

    fn skip_comment(&mut self, line: usize, column: usize) -> Result<(), Misread> {
        let mut last = 0;
        while let Some(byte) = self.next()? {
            if last == b'*' && byte == b'/' {
                return Ok(());
            }
            last = byte;
        }
        Err(Misread::syntax(line, column, "the comment has no end"))
    }

    fn peek(&mut self) -> Result<Option<u8>, Misread> {
        Ok(self.source.fill_buf()?.first().copied())
    }

    fn next(&mut self) -> Result<Option<u8>, Misread> {
        let byte = self.source.fill_buf()?.first().copied();
        if let Some(byte) = byte {
            self.source.consume(1);
            if byte == b'\n' {
                self.line += 1;
                self.column = 1;
            } else if byte & 0xc0 != 0x80 {
                // Columns count characters, so continuation bytes do not count.
                self.column += 1;
            }
        }
        Ok(byte)
    }
}

/// True if the byte is part of a name. Numbers may continue like names, as in `1e9` and `2nd`.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
