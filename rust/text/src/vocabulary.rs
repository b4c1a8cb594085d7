//! A GGUF vocabulary checked and brought into the form that the tokenizers crate merges with.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind, StartKind};
use tokenizers::models::bpe::BPE;

const TYPE_UNKNOWN: i32 = 2;
const TYPE_CONTROL: i32 = 3;
const TYPE_USER_DEFINED: i32 = 4;
const TYPE_BYTE: i32 = 6;

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

/// Finds special tokens, longest first at each place.
pub struct Specials {
    pub finder: AhoCorasick,
    pub ids: Vec<u32>,
    pub control: Vec<bool>,
}

pub fn token_texts<'a>(spec: &TokenizerSpec<'a>) -> Result<Vec<&'a str>, String> {
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

pub fn byte_bpe(spec: &TokenizerSpec, texts: &[&str]) -> Result<BPE, String> {
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
                return Err(format!(
                    "merge {rank} ({merge:?}) needs the token {part:?}, which the vocabulary lacks"
                ));
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
pub fn spm_bpe(spec: &TokenizerSpec, texts: &[&str]) -> Result<BPE, String> {
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

pub fn specials(
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

pub fn byte_tokens(spec: &TokenizerSpec, texts: &[&str]) -> Vec<Option<u32>> {
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
