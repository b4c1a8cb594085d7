//! Text to tokens for the vocabularies that GGUF files carry: byte-level BPE (gpt2) and
//! SentencePiece-style BPE (llama). The merging itself is the tokenizers crate's; around it stand
//! the split into special tokens and text, pre-tokenisation, and the byte offsets of the result.

use std::ops::Range;

use aho_corasick::{Anchored, Input};
use tokenizers::models::bpe::BPE;
use tokenizers::Model;

use crate::escaped::Escaped;
use crate::splitter::Splitter;
use crate::vocabulary::{
    byte_bpe, byte_tokens, specials, spm_bpe, token_texts, ModelKind, Specials, TokenizerSpec,
};

/// Tokens and the byte offset at which each ends.
#[derive(Default, Debug)]
pub struct Encoded {
    pub ids: Vec<i32>,
    pub ends: Vec<u64>,
}

impl Encoded {
    fn push(&mut self, id: u32, end: usize) {
        self.ids.push(id as i32);
        self.ends.push(end as u64);
    }
}

pub struct Tokenizer {
    bpe: BPE,
    kind: ModelKind,
    split: Vec<Splitter>,
    all: Option<Specials>,
    user_defined: Option<Specials>,
    control: Option<Specials>,
    add_space_prefix: bool,
    byte_ids: Vec<Option<u32>>,
    /// Bytes of text that a token stands for (byte BPE), by id.
    num_bytes: Vec<u32>,
}

impl Tokenizer {
    pub fn new(spec: &TokenizerSpec) -> Result<Tokenizer, String> {
        if spec.tokens.len() != spec.types.len() {
            return Err(format!(
                "the vocabulary has {} tokens but {} token types",
                spec.tokens.len(),
                spec.types.len()
            ));
        }
        let texts = token_texts(spec)?;
        let bpe = match spec.kind {
            ModelKind::ByteBpe => byte_bpe(spec, &texts)?,
            ModelKind::Spm => spm_bpe(spec, &texts)?,
        };
        let mut split = Vec::new();
        for pattern in &spec.split_patterns {
            split.push(Splitter::new(pattern)?);
        }
        Ok(Tokenizer {
            bpe,
            kind: spec.kind,
            split,
            all: specials(spec, &texts, true, true)?,
            user_defined: specials(spec, &texts, false, true)?,
            control: specials(spec, &texts, true, false)?,
            add_space_prefix: spec.add_space_prefix,
            byte_ids: byte_tokens(spec, &texts),
            num_bytes: texts.iter().map(|t| t.chars().count() as u32).collect(),
        })
    }

    /// See ikv_tokenizer_encode() in `ikv_text.h`.
    pub fn encode(
        &self,
        text: &[u8],
        parse_special: bool,
        literal: &[Range<usize>],
    ) -> Result<Encoded, String> {
        let mut out = Encoded::default();
        let mut text_begin = 0;
        let mut search_from = 0;
        let mut after_special = true;
        while let Some((range, id)) = self.next_special(text, search_from, parse_special, literal) {
            if text_begin < range.start {
                self.encode_text(text, text_begin..range.start, after_special, &mut out)?;
            }
            out.push(id, range.end);
            after_special = true;
            text_begin = range.end;
            search_from = range.end;
        }
        if text_begin < text.len() {
            self.encode_text(text, text_begin..text.len(), after_special, &mut out)?;
        }
        Ok(out)
    }

    /// See ikv_tokenizer_mark_control() in `ikv_text.h`.
    pub fn mark_control(&self, text: &str, mark: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        if let Some(control) = &self.control {
            // From each place on again, not behind the match: tokens may overlap.
            let mut from = 0;
            while let Some(found) = control.finder.find(Input::new(text).range(from..)) {
                let first = text[found.start()..].chars().next().map_or(1, char::len_utf8);
                from = found.start() + first;
                out.push_str(&text[done..from]);
                out.push_str(mark);
                done = from;
            }
        }
        out.push_str(&text[done..]);
        out
    }

    /// The first special token at or after `from`. Control tokens that overlap a literal range are
    /// passed over; a user-defined token at the same place still counts.
    fn next_special(
        &self,
        text: &[u8],
        mut from: usize,
        parse_special: bool,
        literal: &[Range<usize>],
    ) -> Option<(Range<usize>, u32)> {
        let specials = if parse_special { &self.all } else { &self.user_defined }.as_ref()?;
        while from < text.len() {
            let found = specials.finder.find(Input::new(text).range(from..))?;
            let index = found.pattern().as_usize();
            if !specials.control[index] || !overlaps(literal, &found.range()) {
                return Some((found.range(), specials.ids[index]));
            }
            if let Some(user) = &self.user_defined {
                let here = Input::new(text).range(found.start()..).anchored(Anchored::Yes);
                if let Some(other) = user.finder.find(here) {
                    return Some((other.range(), user.ids[other.pattern().as_usize()]));
                }
            }
            from = found.start() + 1;
        }
        None
    }

    fn encode_text(
        &self,
        text: &[u8],
        range: Range<usize>,
        after_special: bool,
        out: &mut Encoded,
    ) -> Result<(), String> {
        let first = out.ends.len();
        match self.kind {
            ModelKind::ByteBpe => match std::str::from_utf8(&text[range.clone()]) {
                Ok(valid) => self.encode_byte_bpe(valid, range.start, out)?,
                Err(_) => self.encode_byte_bpe(&lossy(&text[range.clone()]), range.start, out)?,
            },
            ModelKind::Spm => {
                self.encode_spm(&text[range.clone()], range.start, after_special, out)?
            }
        }
        // Replaced or dropped bytes shift offsets; the borders of the stretch stay exact.
        for end in &mut out.ends[first..] {
            *end = (*end).min(range.end as u64);
        }
        if let Some(last) = out.ends[first..].last_mut() {
            *last = range.end as u64;
        }
        Ok(())
    }

    fn encode_byte_bpe(&self, text: &str, base: usize, out: &mut Encoded) -> Result<(), String> {
        let whole = 0..text.len();
        let mut pieces = vec![whole];
        for pattern in &self.split {
            pieces = pattern.split(text, &pieces);
        }
        let mut mapped = String::new();
        for piece in pieces {
            mapped.clear();
            mapped.extend(text.as_bytes()[piece.clone()].iter().map(|b| byte_to_char(*b)));
            let mut end = base + piece.start;
            for token in self.bpe.tokenize(&mapped).map_err(|e| e.to_string())? {
                end += self.num_bytes[token.id as usize] as usize;
                out.push(token.id, end);
            }
        }
        Ok(())
    }

    /// Spaces become U+2581 first, then characters are cut as their first byte announces; one that is
    /// not valid UTF-8 (it may have swallowed what follows) becomes byte tokens.
    fn encode_spm(
        &self,
        text: &[u8],
        base: usize,
        after_special: bool,
        out: &mut Encoded,
    ) -> Result<(), String> {
        let mut escaped = Escaped::new(text, self.add_space_prefix && after_special);
        let bytes = std::mem::take(&mut escaped.bytes);
        let mut begin = 0;
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + announced_bytes(bytes[at]));
            if std::str::from_utf8(&bytes[at..end]).is_err() {
                self.encode_spm_run(&bytes, begin..at, base, &mut escaped, out)?;
                for (i, byte) in bytes.iter().enumerate().take(end).skip(at) {
                    if let Some(id) = self.byte_ids[*byte as usize] {
                        out.push(id, base + escaped.original(i + 1));
                    }
                }
                begin = end;
            }
            at = end;
        }
        self.encode_spm_run(&bytes, begin..bytes.len(), base, &mut escaped, out)
    }

    fn encode_spm_run(
        &self,
        bytes: &[u8],
        run: Range<usize>,
        base: usize,
        escaped: &mut Escaped,
        out: &mut Encoded,
    ) -> Result<(), String> {
        let text = std::str::from_utf8(&bytes[run.clone()]).map_err(|e| e.to_string())?;
        for token in self.bpe.tokenize(text).map_err(|e| e.to_string())? {
            out.push(token.id, base + escaped.original(run.start + token.offsets.1));
        }
        Ok(())
    }
}

/// Whether `range` overlaps one of the ascending, disjoint `ranges`.
fn overlaps(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    let first = ranges.partition_point(|r| r.end <= range.start);
    ranges.get(first).is_some_and(|r| r.start < range.end)
}

/// GPT-2's printable stand-in for each byte: printable Latin-1 stands for itself, the rest follow
/// from U+0100 on.
fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u32,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7f..=0xa0 => 0x100 + 0x21 + (byte as u32 - 0x7f),
        0xad => 0x100 + 0x43,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn announced_bytes(first: u8) -> usize {
    match first >> 4 {
        0xc | 0xd => 2,
        0xe => 3,
        0xf => 4,
        _ => 1,
    }
}

/// One U+FFFD for every byte that starts no complete character; a byte that is a well-formed
/// sequence of a forbidden code point (overlong, surrogate) is replaced too.
fn lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                out.push_str(valid);
                break;
            }
            Err(e) => {
                let (valid, invalid) = rest.split_at(e.valid_up_to());
                out.push_str(&String::from_utf8_lossy(valid));
                out.push(char::REPLACEMENT_CHARACTER);
                rest = &invalid[1..];
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_characters_are_distinct() {
        let mut seen: Vec<char> = (0..=255).map(byte_to_char).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 256);
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(byte_to_char(0xad), 'Ń');
    }

    #[test]
    fn ranges_overlap_only_where_they_share_a_byte() {
        let ranges = vec![2..4, 8..9];
        assert!(!overlaps(&ranges, &(0..2)));
        assert!(overlaps(&ranges, &(3..8)));
        assert!(!overlaps(&ranges, &(4..8)));
        assert!(overlaps(&ranges, &(4..9)));
        assert!(!overlaps(&ranges, &(9..20)));
    }

    #[test]
    fn each_broken_byte_becomes_one_replacement() {
        assert_eq!(lossy(b"a\xe2\x82b"), "a\u{fffd}\u{fffd}b");
        assert_eq!(lossy(b"\xffok"), "\u{fffd}ok");
    }
}
