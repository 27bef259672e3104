//! What somebody may have meant who wrote a word that is not known.

/// Returns "did you mean" or the list of what there is, for a word that is not among `known`.
pub(crate) fn nearest(word: &str, known: &[&str]) -> String {
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(word, candidate);
    match known.iter().min_by_key(distance) {
        // A third of the letters wrong is a typing mistake; more is another word.
        Some(best) if distance(&best) <= word.len().div_ceil(3) => {
            format!("did you mean `{best}`?")
        }
        _ => format!("there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest__a_typing_mistake_is_named_and_another_word_gets_the_list() {
        assert_eq!(nearest("quues", &["queues", "victims"]), "did you mean `queues`?");
        assert_eq!(nearest("elephant", &["queues", "victims"]), "there are queues, victims");
    }
}
