//! Text to tokens for the vocabularies that GGUF files carry: byte-level BPE (gpt2) and
//! SentencePiece-style BPE (llama). The merging itself is the tokenizers crate's; around it stand
//! the split into special tokens and text, pre-tokenisation, and the byte offsets of the result.

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use regex::Regex;
use tokenizers::models::bpe::BPE;
use tokenizers::Model;

const TYPE_UNKNOWN: i32 = 2;
const TYPE_CONTROL: i32 = 3;
const TYPE_USER_DEFINED: i32 = 4;
const TYPE_BYTE: i32 = 6;

const SPM_SPACE: char = '\u{2581}';

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelKind {
    ByteBpe,
    Spm,
}

/// What `ikv_text.h` says of IkvTokenizerSpec.
pub struct TokenizerSpec<'a> {
    pub kind: ModelKind,
    pub tokens: Vec<&'a [u8]>,
    pub types: &'a [i32],
    pub scores: &'a [f32],
    pub merges: Vec<&'a [u8]>,
    pub split_patterns: Vec<&'a str>,
    pub ignore_merges: bool,
    pub add_space_prefix: bool,
    pub unknown_id: Option<u32>,
}

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

/// Finds special tokens, longest first at each place.
struct Specials {
    finder: AhoCorasick,
    ids: Vec<u32>,
    control: Vec<bool>,
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
        let mut pieces = vec![0..text.len()];
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
                for i in at..end {
                    if let Some(id) = self.byte_ids[bytes[i] as usize] {
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

/// A text with its spaces replaced, and the way back to the original's offsets.
struct Escaped {
    bytes: Vec<u8>,
    prefix_bytes: usize,
    /// Where in `bytes` each replaced space begins.
    spaces: Vec<usize>,
    passed: usize,
}

impl Escaped {
    fn new(text: &[u8], prefix: bool) -> Escaped {
        let mut space = [0; 4];
        let space = SPM_SPACE.encode_utf8(&mut space).as_bytes();
        let mut bytes = Vec::with_capacity(text.len() + text.len() / 4 + space.len());
        let mut spaces = Vec::new();
        if prefix {
            bytes.extend_from_slice(space);
        }
        for byte in text {
            if *byte == b' ' {
                spaces.push(bytes.len());
                bytes.extend_from_slice(space);
            } else {
                bytes.push(*byte);
            }
        }
        let prefix_bytes = if prefix { space.len() } else { 0 };
        Escaped { bytes, prefix_bytes, spaces, passed: 0 }
    }

    /// The original's offset for an offset in `bytes`; calls must come in ascending order.
    fn original(&mut self, offset: usize) -> usize {
        while self.spaces.get(self.passed).is_some_and(|space| space + 2 < offset) {
            self.passed += 1;
        }
        offset.saturating_sub(self.prefix_bytes + 2 * self.passed)
    }
}

fn token_texts<'a>(spec: &TokenizerSpec<'a>) -> Result<Vec<&'a str>, String> {
    let mut texts = Vec::with_capacity(spec.tokens.len());
    for (id, token) in spec.tokens.iter().enumerate() {
        texts.push(
            std::str::from_utf8(token).map_err(|_| format!("token {id} is not valid UTF-8"))?,
        );
    }
    Ok(texts)
}

/// Tokens that text may become: all but control and unknown tokens, which only the finder of special
/// tokens yields, so that no merge can make one.
fn text_vocabulary<'a>(spec: &TokenizerSpec, texts: &[&'a str]) -> HashMap<&'a str, u32> {
    let mut vocabulary = HashMap::with_capacity(texts.len());
    for (id, text) in texts.iter().enumerate() {
        if !matches!(spec.types[id], TYPE_CONTROL | TYPE_UNKNOWN) && !text.is_empty() {
            vocabulary.insert(*text, id as u32);
        }
    }
    vocabulary
}

fn owned(vocabulary: &HashMap<&str, u32>) -> Vec<(String, u32)> {
    vocabulary.iter().map(|(text, id)| (text.to_string(), *id)).collect()
}

fn byte_bpe(spec: &TokenizerSpec, texts: &[&str]) -> Result<BPE, String> {
    let vocabulary = text_vocabulary(spec, texts);
    let mut merges = Vec::with_capacity(spec.merges.len());
    for (rank, merge) in spec.merges.iter().enumerate() {
        let merge =
            std::str::from_utf8(merge).map_err(|_| format!("merge {rank} is not valid UTF-8"))?;
        // A part may itself be a space only in broken files; the separator is never the first byte.
        let Some((left, right)) = merge
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == ' ')
            .map(|(at, _)| (&merge[..at], &merge[at + 1..]))
        else {
            return Err(format!("merge {rank} ({merge:?}) is not two tokens and a space"));
        };
        let whole = format!("{left}{right}");
        for part in [left, right, whole.as_str()] {
            if !vocabulary.contains_key(part) {
                return Err(format!("merge {rank} ({merge:?}) needs the token {part:?}, which the vocabulary lacks"));
            }
        }
        merges.push((left.to_string(), right.to_string()));
    }
    BPE::builder()
        .vocab_and_merges(owned(&vocabulary).into_iter().collect::<ahash::AHashMap<_, _>>(), merges)
        .ignore_merges(spec.ignore_merges)
        .build()
        .map_err(|e| e.to_string())
}

/// SentencePiece merges whichever neighbours make the token of best score: that is BPE whose merges
/// are all splits of all tokens into two tokens, by falling score.
fn spm_bpe(spec: &TokenizerSpec, texts: &[&str]) -> Result<BPE, String> {
    if spec.scores.len() != texts.len() {
        return Err("a SentencePiece vocabulary needs one score per token".into());
    }
    if let Some(id) = spec.scores.iter().position(|s| s.is_nan()) {
        return Err(format!("the score of token {id} is not a number"));
    }
    let mut vocabulary = text_vocabulary(spec, texts);
    let mut splits: Vec<(f32, &str, usize)> = Vec::new();
    for (text, id) in &vocabulary {
        if spec.types[*id as usize] == TYPE_BYTE {
            continue;
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if mergeable(&vocabulary, spec, left) && mergeable(&vocabulary, spec, right) {
                splits.push((spec.scores[*id as usize], text, at));
            }
        }
    }
    splits.sort_unstable_by(|a, b| {
        b.0.total_cmp(&a.0).then_with(|| vocabulary[a.1].cmp(&vocabulary[b.1])).then(a.2.cmp(&b.2))
    });
    let merges = splits
        .into_iter()
        .map(|(_, text, at)| (text[..at].to_string(), text[at..].to_string()))
        .collect();
    let mut builder = BPE::builder().byte_fallback(true);
    if let Some(id) = spec.unknown_id {
        let text = *texts.get(id as usize).ok_or("the unknown token is not in the vocabulary")?;
        vocabulary.insert(text, id);
        builder = builder.unk_token(text.to_string());
    }
    builder
        .vocab_and_merges(owned(&vocabulary).into_iter().collect::<ahash::AHashMap<_, _>>(), merges)
        .build()
        .map_err(|e| e.to_string())
}

fn mergeable(vocabulary: &HashMap<&str, u32>, spec: &TokenizerSpec, text: &str) -> bool {
    vocabulary.get(text).is_some_and(|id| spec.types[*id as usize] != TYPE_BYTE)
}

fn specials(
    spec: &TokenizerSpec,
    texts: &[&str],
    with_control: bool,
    with_user_defined: bool,
) -> Result<Option<Specials>, String> {
    let mut patterns = Vec::new();
    let mut ids = Vec::new();
    let mut control = Vec::new();
    for (id, text) in texts.iter().enumerate() {
        let is_control = matches!(spec.types[id], TYPE_CONTROL | TYPE_UNKNOWN);
        let is_user_defined = spec.types[id] == TYPE_USER_DEFINED;
        let wanted = (with_user_defined && is_user_defined) || (with_control && is_control);
        if !text.is_empty() && wanted {
            patterns.push(*text);
            ids.push(id as u32);
            control.push(is_control);
        }
    }
    if patterns.is_empty() {
        return Ok(None);
    }
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .start_kind(StartKind::Both)
        .build(&patterns)
        .map_err(|e| format!("special tokens: {e}"))?;
    Ok(Some(Specials { finder, ids, control }))
}

fn byte_tokens(spec: &TokenizerSpec, texts: &[&str]) -> Vec<Option<u32>> {
    let mut ids = vec![None; 256];
    for (id, text) in texts.iter().enumerate() {
        let hex = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
        if let (TYPE_BYTE, Some(hex)) = (spec.types[id], hex) {
            if let Ok(byte) = u8::from_str_radix(hex, 16) {
                ids[byte as usize] = Some(id as u32);
            }
        }
    }
    ids
}

/// One pre-tokenisation pattern. The only look-ahead that these patterns use is `\s+(?!\S)`: a run of
/// whitespace leaves its last character to the word behind it. Here that rule is code, so that the
/// rest is a regular expression in the strict sense, which takes linear time on any text.
struct Splitter {
    regex: Regex,
    /// Whitespace runs give up their last character before a word.
    shortens_runs: bool,
    /// Runs that end in a line break are another alternative's match and stay whole.
    keeps_line_breaks: bool,
}

impl Splitter {
    fn new(pattern: &str) -> Result<Splitter, String> {
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
    fn split(&self, text: &str, pieces: &[Range<usize>]) -> Vec<Range<usize>> {
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
