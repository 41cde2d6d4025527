//! URLs in parts, because Talos merges them part by part.

/// The parts of a URL, as Go's `net/url` takes it apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    /// Host and port.
    host: String,
    path: String,
    query: String,
    fragment: String,
    /// Whether there is a `//` before an empty host.
    authority: bool,
}

/// Why two URLs cannot be merged: Talos has no way to merge two user names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoUsers;

impl Url {
    /// Takes a URL apart; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err("holds a control character");
        }
        let mut escapes = text.split('%').skip(1).map(str::as_bytes);
        if escapes.any(|after| after.len() < 2 || !after.iter().take(2).all(u8::is_ascii_hexdigit)) {
            return Err("has a `%` that begins no escape");
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = split_scheme(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            fragment: escape(fragment),
            ..Self::default()
        };
        if !rest.starts_with('/') && !scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if scheme.is_empty() && rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("has a colon before its first slash: is the scheme missing?");
        }
        let after = if rest.starts_with("///") && scheme.is_empty() { None } else { rest.strip_prefix("//") };
        let Some(after) = after else {
            url.path = escape(rest);
            return Ok(url);
        };
        let (authority, path) = after.find('/').map_or((after, ""), |at| after.split_at(at));
        url.take_authority(authority)?;
        url.path = escape(path);
        Ok(url)
    }

    fn take_authority(&mut self, authority: &str) -> Result<(), &'static str> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(host)?;
        self.user = user.map(str::to_owned);
        host.clone_into(&mut self.host);
        self.authority = true;
        Ok(())
    }

    /// Returns the scheme in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns host and port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the host without its port.
    pub fn host_name(&self) -> &str {
        let host = match self.host.rfind(':') {
            Some(at) if !self.host[at..].contains(']') => &self.host[..at],
            _ => &self.host,
        };
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port, if one is written.
    pub fn port(&self) -> &str {
        match self.host.rfind(':') {
            Some(at) if !self.host[at..].contains(']') => &self.host[at + 1..],
            _ => "",
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes over each part that the other one has.
    pub fn merge(&mut self, other: Self) -> Result<(), TwoUsers> {
        if self.user.is_some() && other.user.is_some() {
            return Err(TwoUsers);
        }
        let take = |mine: &mut String, theirs: String| {
            if !theirs.is_empty() {
                *mine = theirs;
            }
        };
        take(&mut self.scheme, other.scheme);
        take(&mut self.opaque, other.opaque);
        take(&mut self.host, other.host);
        take(&mut self.path, other.path);
        take(&mut self.query, other.query);
        take(&mut self.fragment, other.fragment);
        self.user = self.user.take().or(other.user);
        self.authority |= other.authority;
        Ok(())
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            let authority = !self.host.is_empty() || self.user.is_some();
            if authority || self.authority && (!self.path.is_empty() || !self.scheme.is_empty()) {
                f.write_str("//")?;
            }
            if let Some(user) = &self.user {
                write!(f, "{user}@")?;
            }
            f.write_str(&self.host)?;
            if !self.path.is_empty() && !self.path.starts_with('/') && !self.host.is_empty() {
                f.write_str("/")?;
            }
            f.write_str(&self.path)?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("begins with a colon: the scheme is missing"),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("has a `[` without a `]`")?;
        &host[end + 1..]
    } else {
        host.find(':').map_or("", |at| &host[host.rfind(':').unwrap_or(at)..])
    };
    let number = port.strip_prefix(':').unwrap_or(port);
    if port.len() != number.len() + 1 && !port.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("has a port that is not a number");
    }
    if host.bytes().any(|b| matches!(b, b' ' | b'<' | b'>' | b'"' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'))
    {
        return Err("has a character in its host that is not allowed there");
    }
    Ok(())
}

/// Percent-encodes what may not stand in a path or fragment.
fn escape(text: &str) -> String {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%?".contains(&b);
    if text.bytes().all(allowed) {
        return text.to_owned();
    }
    text.bytes().map(|b| if allowed(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_written_as_they_were_read() {
        for text in [
            "https://10.0.0.1:6443",
            "https://[fd00::1]:6443/a?b=c#d",
            "tcp://u:p@host:514/",
            "/dev/null",
            "udp://127.0.0.1:12345/",
            "tls:host",
            "",
            "host",
            "file:///etc/x",
        ] {
            assert_eq!(Url::parse(text).map(|url| url.to_string()), Ok(text.to_owned()), "{text}");
        }
        assert_eq!(Url::parse("HTTPS://a/b c").map(|url| url.to_string()), Ok("https://a/b%20c".to_owned()));
        for text in [
            "10.0.0.1:6443",
            ":x",
            "https://a:b",
            "https://[::1",
            "http://a b/",
            "http://a/%zz",
            "http://a/%",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn merging_keeps_the_parts_that_the_other_lacks() {
        let mut url = Url::parse("https://old:6443/path?x=1#f").unwrap_or_default();
        assert_eq!(url.merge(Url::parse("http://new").unwrap_or_default()), Ok(()));
        assert_eq!(url.to_string(), "http://new/path?x=1#f");
        let mut url = Url::parse("https://a:b@old").unwrap_or_default();
        assert_eq!(url.merge(Url::parse("https://c@new").unwrap_or_default()), Err(TwoUsers));
    }
}
