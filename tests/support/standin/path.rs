//! Paths as mod-authtoken's router sees them.
//!
//! The filter's own prefixes are compared with the raw path, the health route with the normalised one. That difference is what
//! makes `/x/../admin/health` healthy and `//token` an ordinary path.

/// The raw path of a request target: no query, no authority.
pub fn raw(target: &str) -> &str {
    let path = if target.starts_with('/') {
        target
    } else if let Some((_, rest)) = target.split_once("://") {
        rest.find('/').map_or("/", |slash| &rest[slash..])
    } else {
        target
    };
    path.split('?').next().unwrap_or_default()
}

/// The path with unreserved characters decoded, dot segments and doubled slashes taken out; `None` for a broken escape.
pub fn normalised(path: &str) -> Option<String> {
    let decoded = if path.contains('%') {
        decode_unreserved(path)?
    } else {
        path.to_owned()
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    Some(format!("/{}", segments.join("/")))
}

fn decode_unreserved(path: &str) -> Option<String> {
    let mut decoded = String::with_capacity(path.len());
    let mut parts = path.split('%');
    decoded.push_str(parts.next()?);
    for part in parts {
        let hex = part.get(..2)?;
        let byte = u8::from_str_radix(hex, 16).ok()?;
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            decoded.push(char::from(byte));
        } else {
            decoded.push('%');
            decoded.push_str(hex);
        }
        decoded.push_str(&part[2..]);
    }
    Some(decoded)
}
