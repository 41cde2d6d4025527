//! How wide text is, and what to do when it is too wide.
//!
//! A file cannot ask for font metrics. Widths are those of Arial and its kin, rounded up a
//! little, so that the fonts of the stack in [`super::theme`] stay within what was measured.

/// A way to write text: its CSS class, and what measuring needs to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Face {
    pub(super) class: &'static str,
    pub(super) size: usize,
    pub(super) weight: usize,
    pub(super) mono: bool,
}

impl Face {
    const fn plain(class: &'static str, size: usize) -> Self {
        Self { class, size, weight: 400, mono: false }
    }

    const fn bold(class: &'static str, size: usize) -> Self {
        Self { class, size, weight: 600, mono: false }
    }

    const fn mono(class: &'static str, size: usize, weight: usize) -> Self {
        Self { class, size, weight, mono: true }
    }

    /// Returns how wide a line is, in pixels, rounded up.
    pub(super) fn width(&self, text: &str) -> usize {
        let thousandths: usize = text.chars().map(|c| self.advance(c)).sum();
        (thousandths * self.size).div_ceil(1000)
    }

    /// Returns how far a character moves the pen, in thousandths of the font's size.
    fn advance(&self, c: char) -> usize {
        let narrow = c < '\u{250}' || c == '…';
        match (self.mono, self.weight > 400) {
            (true, _) if narrow => 605,
            (false, true) if narrow => proportional(c) * 27 / 25,
            _ if narrow => proportional(c),
            // Ideographs are a full square; emoji are drawn a little wider.
            _ => 1250,
        }
    }

    /// Returns text that is at most `width` wide, its end cut off if need be.
    pub(super) fn fit(&self, text: &str, width: usize) -> String {
        if self.width(text) <= width {
            return text.into();
        }
        let mut kept: String = self.prefix(text, width.saturating_sub(self.width("…"))).into();
        kept.truncate(kept.trim_end().len());
        kept + "…"
    }

    /// Returns text that is at most `width` wide, its middle cut out if need be: in names that
    /// count, it is the end that tells them apart.
    pub(super) fn fit_middle(&self, text: &str, width: usize) -> String {
        if self.width(text) <= width {
            return text.into();
        }
        let room = width.saturating_sub(self.width("…"));
        let reversed: String = text.chars().rev().collect();
        let tail: String = self.prefix(&reversed, room / 2).chars().rev().collect();
        format!("{}…{tail}", self.prefix(text, room - self.width(&tail).min(room)))
    }

    /// Breaks text into lines, after a `-` where one is near; the first line may have less room.
    pub(super) fn wrap(&self, text: &str, first_width: usize, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut rest, mut room) = (text, first_width);
        // A line takes at least one character, however narrow the page.
        while self.width(rest) > room && rest.chars().nth(1).is_some() {
            let line = break_after_hyphen(self.prefix(rest, room));
            let end = line.len().max(rest.chars().next().map_or(0, char::len_utf8));
            lines.push(rest[..end].into());
            (rest, room) = (&rest[end..], width);
        }
        lines.push(rest.into());
        lines
    }

    /// Returns the longest beginning of text that is at most `width` wide.
    fn prefix<'t>(&self, text: &'t str, width: usize) -> &'t str {
        let mut used = 0;
        let end = text.char_indices().find(|(_, c)| {
            used += self.advance(*c) * self.size;
            used > width * 1000
        });
        &text[..end.map_or(text.len(), |(i, _)| i)]
    }
}

/// Returns the line up to its last `-`, unless that would leave it more than a third empty.
fn break_after_hyphen(line: &str) -> &str {
    match line.rfind('-') {
        Some(i) if (i + 1) * 3 >= line.len() * 2 => &line[..=i],
        _ => line,
    }
}

const fn proportional(c: char) -> usize {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 255,
        'f' | 'r' | 't' | '-' | '(' | ')' | '[' | ']' | ' ' | '/' | 'I' | '·' => 320,
        'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' | 'J' => 520,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 900,
        'A'..='Z' | '&' | '+' | '<' | '>' | '=' => 690,
        _ => 570,
    }
}

/// The cluster's name.
pub(super) const TITLE: Face = Face::bold("title", 28);
/// What the cluster is made of.
pub(super) const SUBTITLE: Face = Face::plain("sub", 13);
/// A small heading.
pub(super) const LABEL: Face = Face::bold("label", 11);
/// The environment.
pub(super) const CHIP: Face = Face::bold("chip", 11);
/// The endpoint's URL.
pub(super) const URL: Face = Face::mono("url", 14, 600);
/// A remark.
pub(super) const NOTE: Face = Face::plain("note", 11);
/// A host's name.
pub(super) const HOST: Face = Face::bold("host", 15);
/// A machine's name.
pub(super) const NAME: Face = Face::bold("name", 13);
/// An address.
pub(super) const ADDRESS: Face = Face::mono("addr", 12, 400);
/// A quantity.
pub(super) const STAT: Face = Face::plain("stat", 11);
/// A quantity that is more than there is.
pub(super) const OVER: Face = Face::bold("over", 11);
/// A machine's name in a list.
pub(super) const ROW: Face = Face::plain("row", 12);
/// An address in a list.
pub(super) const ROW_ADDRESS: Face = Face::mono("rowaddr", 11, 400);
/// Text in a badge.
pub(super) const BADGE: Face = Face::plain("badge", 10);

/// Every face, for the style sheet.
pub(super) const FACES: [Face; 14] =
    [TITLE, SUBTITLE, LABEL, CHIP, URL, NOTE, HOST, NAME, ADDRESS, STAT, OVER, ROW, ROW_ADDRESS, BADGE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_fits_stays_whole() {
        assert_eq!(NAME.fit("cp-1", 200), "cp-1");
        assert_eq!(NAME.fit_middle("cp-1", 200), "cp-1");
        assert_eq!(NAME.wrap("cp-1", 200, 200), ["cp-1"]);
    }

    #[test]
    fn cut_text_is_as_wide_as_asked() {
        let long = "a-very-long-name-that-goes-on-and-on-17";
        for width in [0, 1, 20, 50, 51, 52, 120] {
            let ellipsis = NAME.width("…");
            assert!(NAME.width(&NAME.fit(long, width)) <= width.max(ellipsis), "{width}");
            assert!(NAME.width(&NAME.fit_middle(long, width)) <= width.max(ellipsis), "{width}");
        }
        assert!(NAME.fit_middle(long, 120).ends_with("17"));
    }

    #[test]
    fn wrapping_loses_nothing_and_prefers_hyphens() {
        let long = "a-very-long-name-that-goes-on-and-on-17";
        let lines = NAME.wrap(long, 90, 120);
        assert_eq!(lines.concat(), long);
        assert!(lines[0].ends_with('-'), "{lines:?}");
        assert_eq!(NAME.wrap("日本", 0, 0), ["日", "本"]);
    }
}
