//! Pre-tokenisation: cutting text into the pieces within which a byte-level BPE model merges.

use std::ops::Range;

use regex::Regex;

/// One pre-tokenisation pattern. The only look-ahead that these patterns use is `\s+(?!\S)`: a run of
/// whitespace leaves its last character to the word behind it. Here that rule is code, so that the
/// rest is a regular expression in the strict sense, which takes linear time on any text.
pub struct Splitter {
    regex: Regex,
    /// Whitespace runs give up their last character before a word.
    shortens_runs: bool,
    /// Runs that end in a line break are another alternative's match and stay whole.
    keeps_line_breaks: bool,
}

impl Splitter {
    pub fn new(pattern: &str) -> Result<Splitter, String> {
        let shortens_runs = pattern.contains(r"\s+(?!\S)");
        let plain = pattern.replace(r"\s+(?!\S)|\s+", r"\s+").replace(r"\s+(?!\S)", r"\s+");
        Ok(Splitter {
            regex: Regex::new(&plain)
                .map_err(|e| format!("pre-tokenizer pattern {pattern:?}: {e}"))?,
            shortens_runs,
            keeps_line_breaks: pattern.contains(r"\s*[\r\n]+"),
        })
    }

    /// Cuts each piece at the pattern's matches; what lies between matches is a piece too.
    pub fn split(&self, text: &str, pieces: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut out = Vec::with_capacity(pieces.len() * 2);
        for piece in pieces {
            let part = &text[piece.clone()];
            let mut done = 0;
            while let Some(found) = self.regex.find_at(part, done) {
                let end = self.shortened(part, found.range());
                if done < found.start() {
                    out.push(piece.start + done..piece.start + found.start());
                }
                if end == found.start() {
                    break; // an empty match: no pattern here has one
                }
                out.push(piece.start + found.start()..piece.start + end);
                done = end;
            }
            if done < part.len() {
                out.push(piece.start + done..piece.end);
            }
        }
        out
    }

    /// The match's end after `\s+(?!\S)`.
    fn shortened(&self, part: &str, found: Range<usize>) -> usize {
        if !self.shortens_runs || found.end == part.len() {
            return found.end;
        }
        let Some(last) = part[found.clone()].chars().next_back() else { return found.end };
        let line_break = matches!(last, '\r' | '\n');
        if !last.is_whitespace() || (line_break && self.keeps_line_breaks) {
            return found.end;
        }
        let end = found.end - last.len_utf8();
        if end > found.start {
            end
        } else {
            found.end
        }
    }
}
