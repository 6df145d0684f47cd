//! The operator's settings: one JSON object.

use core::fmt::Write;
use core::ops::{Range, RangeInclusive};

use crate::abi;
use crate::guest::message;
use crate::Error;

const MAX_KEYS: usize = 32;

/// Settings are asked for by key, with their default and range. What is wrong is an error, and so is
/// a key nobody asked for: a typing mistake must not pass in silence.
pub struct Config<'a> {
    text: &'a [u8],
    asked: [&'static str; MAX_KEYS],
    n_asked: usize,
}

/// The message was written already.
const BAD: Error = Error::new(abi::CODE_BAD_CONFIG, "");

impl<'a> Config<'a> {
    /// Settings from JSON text, for tests; the host's come as an argument of [`crate::Policy::new`].
    pub fn new(text: &'a [u8]) -> Config<'a> {
        Config { text, asked: [""; MAX_KEYS], n_asked: 0 }
    }

    /// A whole number in a range; without the key it is standard.
    pub fn int(
        &mut self,
        key: &'static str,
        standard: i64,
        range: RangeInclusive<i64>,
    ) -> Result<i64, Error> {
        let text = match self.find(key)? {
            None => return Ok(standard),
            Some(span) => &self.text[span],
        };
        match whole(text) {
            Some(v) if range.contains(&v) => Ok(v),
            _ => {
                let (low, high) = (range.start(), range.end());
                let _ = write!(
                    message(),
                    "config: {} must be a whole number from {} to {}",
                    key, low, high
                );
                Err(BAD)
            }
        }
    }

    /// true or false; without the key it is standard.
    pub fn bool(&mut self, key: &'static str, standard: bool) -> Result<bool, Error> {
        match self.find(key)?.map(|span| &self.text[span]) {
            None => Ok(standard),
            Some(b"true") => Ok(true),
            Some(b"false") => Ok(false),
            _ => {
                let _ = write!(message(), "config: {} must be true or false", key);
                Err(BAD)
            }
        }
    }

    /// Refuses a key that nobody asked for.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let mut at = 0;
        while let Some((name, _)) = self.next(&mut at)? {
            let name = &self.text[name];
            if !self.asked[..self.n_asked].iter().any(|k| k.as_bytes() == name) {
                let name = core::str::from_utf8(name).unwrap_or("?");
                let _ = write!(message(), "config: there is no setting {}", name);
                return Err(BAD);
            }
        }
        Ok(())
    }

    fn find(&mut self, key: &'static str) -> Result<Option<Range<usize>>, Error> {
        if self.n_asked < MAX_KEYS {
            self.asked[self.n_asked] = key;
            self.n_asked += 1;
        }
        let mut at = 0;
        while let Some((name, value)) = self.next(&mut at)? {
            if &self.text[name] == key.as_bytes() {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The next member of the object, as spans of its key and value; at starts at 0.
    fn next(&self, at: &mut usize) -> Result<Option<(Range<usize>, Range<usize>)>, Error> {
        match self.member(at) {
            Some(found) => Ok(found),
            None => {
                let _ = message().write_str("config: settings are not a JSON object");
                Err(BAD)
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn member(&self, at: &mut usize) -> Option<Option<(Range<usize>, Range<usize>)>> {
        let mut p = self.space(*at);
        if *at != 0 && self.text.get(p) == Some(&b'}') {
            return Some(None);
        }
        if self.text.get(p) != Some(if *at == 0 { &b'{' } else { &b',' }) {
            return None;
        }
        p = self.space(p + 1);
        if *at == 0 && self.text.get(p) == Some(&b'}') {
            return Some(None);
        }
        if self.text.get(p) != Some(&b'"') {
            return None;
        }
        let key = p + 1..self.skip(p)? - 1;
        p = self.space(key.end + 1);
        if self.text.get(p) != Some(&b':') {
            return None;
        }
        p = self.space(p + 1);
        let value = p..self.skip(p)?;
        *at = value.end;
        Some(Some((key, value)))
    }

    fn space(&self, mut at: usize) -> usize {
        while matches!(self.text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            at += 1;
        }
        at
    }

    /// The end of the value at start.
    fn skip(&self, start: usize) -> Option<usize> {
        let (mut at, mut depth) = (start, 0usize);
        while let Some(&b) = self.text.get(at) {
            match b {
                b'"' => {
                    at = self.string(at)?;
                    if depth == 0 {
                        return Some(at);
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => return Some(at + 1),
                b'}' | b']' if depth > 1 => depth -= 1,
                b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => {
                    return if at > start { Some(at) } else { None };
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// The end of the string at start.
    fn string(&self, start: usize) -> Option<usize> {
        let mut at = start + 1;
        loop {
            match self.text.get(at)? {
                b'"' => return Some(at + 1),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }
}

fn whole(text: &[u8]) -> Option<i64> {
    let (minus, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut v = 0i64;
    for &d in digits {
        if !d.is_ascii_digit() {
            return None;
        }
        v = v * 10 + i64::from(d - b'0');
    }
    Some(if minus { -v } else { v })
}
