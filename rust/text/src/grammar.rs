//! Constrained replies: which tokens may come next under a JSON schema, a regular expression or a Lark
//! grammar. The work is llguidance's.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrammarKind {
    JsonSchema,
    Regex,
    Lark,
}

/// A vocabulary prepared for grammars; made once per model.
pub struct GrammarVocabulary {
    factory: ParserFactory,
    num_words: usize,
}

/// One reply's position in a grammar.
pub struct GrammarState {
    matcher: Matcher,
    num_words: usize,
}

impl GrammarVocabulary {
    /// `tokens`: bytes by id; `control`: which are control tokens (no text may match them);
    /// `ends`: tokens that end a reply, at least one.
    pub fn new(
        tokens: &[&[u8]],
        control: &[u8],
        ends: &[u32],
    ) -> Result<GrammarVocabulary, String> {
        let Some(end) = ends.first() else {
            return Err("the vocabulary has no token that ends a reply".into());
        };
        if control.len() != tokens.len() || ends.iter().any(|e| *e as usize >= tokens.len()) {
            return Err("the vocabulary contradicts itself".into());
        }
        let words: Vec<Vec<u8>> = tokens
            .iter()
            .zip(control)
            .map(|(token, control)| {
                let mut word = Vec::with_capacity(token.len() + 1);
                if *control != 0 {
                    word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                }
                word.extend_from_slice(token);
                word
            })
            .collect();
        let info = TokRxInfo::new(words.len() as u32, *end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(ends);
        let environment: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|e| e.to_string())?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(GrammarVocabulary { factory, num_words: words.len().div_ceil(32) })
    }

    pub fn compile(&self, kind: GrammarKind, source: &str) -> Result<GrammarState, String> {
        let grammar = match kind {
            GrammarKind::JsonSchema => {
                let schema = serde_json::from_str(source).map_err(|e| format!("schema: {e}"))?;
                TopLevelGrammar::from_json_schema(schema)
            }
            GrammarKind::Regex => TopLevelGrammar::from_regex(source),
            GrammarKind::Lark => TopLevelGrammar::from_lark(source.to_string()),
        };
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(message) => Err(message),
            None => Ok(GrammarState { matcher, num_words: self.num_words }),
        }
    }
}

impl GrammarState {
    /// Allowed tokens, a bit each, in words of 32.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), String> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| e.to_string())?;
        words.fill(0);
        let n = self.num_words.min(words.len()).min(mask.as_slice().len());
        words[..n].copy_from_slice(&mask.as_slice()[..n]);
        Ok(())
    }

    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(()); // what follows a finished reply is not the grammar's concern
        }
        self.matcher.consume_token(token).map_err(|e| e.to_string())
    }

    /// Whether the reply may end here.
    pub fn may_end(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }

    pub fn copy(&self) -> GrammarState {
        GrammarState { matcher: self.matcher.deep_clone(), num_words: self.num_words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> (Vec<Vec<u8>>, GrammarVocabulary) {
        let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
        tokens.push(b"<end>".to_vec());
        let slices: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
        let mut control = vec![0; 257];
        control[256] = 1;
        let vocabulary = GrammarVocabulary::new(&slices, &control, &[256]).expect("builds");
        (tokens, vocabulary)
    }

    fn allowed(state: &mut GrammarState) -> Vec<u32> {
        let mut words = vec![0u32; 257usize.div_ceil(32)];
        state.mask(&mut words).expect("mask");
        (0..257).filter(|t| words[*t as usize / 32] >> (t % 32) & 1 == 1).collect()
    }

    #[test]
    fn a_schema_allows_exactly_its_json() {
        let (_, vocabulary) = vocabulary();
        let schema = r#"{"type":"object","properties":{"a":{"enum":["x","y"]}},
                        "required":["a"],"additionalProperties":false}"#;
        let mut state = vocabulary.compile(GrammarKind::JsonSchema, schema).expect("compiles");
        for byte in b"{\"a\":\"x\"}" {
            assert!(allowed(&mut state).contains(&u32::from(*byte)));
            assert!(!state.may_end());
            state.accept(u32::from(*byte)).expect("accepted");
        }
        assert!(state.may_end());
        assert!(allowed(&mut state).contains(&256));
        assert!(!allowed(&mut state).contains(&u32::from(b'{')));
    }

    #[test]
    fn refused_tokens_and_bad_grammars_are_errors() {
        let (_, vocabulary) = vocabulary();
        let mut state = vocabulary.compile(GrammarKind::Regex, "[0-9]{2}").expect("compiles");
        let mut copy = state.copy();
        assert!(state.accept(u32::from(b'x')).is_err());
        assert!(copy.accept(u32::from(b'7')).is_ok());
        for (kind, source) in [
            (GrammarKind::JsonSchema, "{"),
            (GrammarKind::JsonSchema, r#"{"type":"nonsense"}"#),
            (GrammarKind::Regex, "("),
            (GrammarKind::Lark, "start: missing"),
        ] {
            assert!(vocabulary.compile(kind, source).is_err(), "{source}");
        }
    }
}
