//! "Did you mean".

/// Returns the known word that was probably meant.
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    let meant = plain(written);
    if let Some(same) = known.iter().find(|word| plain(word) == meant) {
        return Some(same);
    }
    // Two slips in a long word, one in a short one.
    let allowed = if written.chars().count() > 5 { 2 } else { 1 };
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(&meant, &plain(word)), *word))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}
