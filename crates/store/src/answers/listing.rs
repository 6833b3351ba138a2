//! Whether the answer to a listing is the listing that was asked for, and all of it.
//!
//! | what is checked                                                | S3 and Google           | Azure                     |
//! |----------------------------------------------------------------|-------------------------|---------------------------|
//! | the document is whole XML with this root                       | `ListBucketResult`      | `EnumerationResults`      |
//! | it is not of the old kind, which goes on in another way        | no `Marker`             |                           |
//! | it says whether more follows                                   | `IsTruncated`           | `NextMarker`              |
//! | and where to go on, exactly if more follows                    | `NextContinuationToken` | `NextMarker` is not empty |
//! | the place to go on is not the one it came from                 | yes                     | yes                       |
//! | the number of entries, if it is given                          | `KeyCount`              | not given                 |
//! | it is for the prefix that was asked for, if it names one       | `Prefix`                | `Prefix`                  |
//! | each entry has a name below that prefix                        | `Contents/Key`          | `Blobs/Blob/Name`         |

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, escape};

/// How much of a foreign answer a message quotes.
const QUOTED: usize = 60;

/// How a store lists. Google's client uses the interface of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    S3,
    Azure,
}

/// The requested listing.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) prefix: String,
    /// Where this page begins, if it is not the first.
    pub(super) token: Option<String>,
}

/// Why an answer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListingProblem {
    /// Another document, or none, as from gateways and failing servers.
    #[error("the answer to a listing is no listing: it begins with {start:?}; is this {server}?")]
    Foreign {
        /// Its first characters.
        start: String,
        /// The expected root element.
        server: &'static str,
    },
    /// A listing that ends early, or is no XML.
    #[error("the answer to a listing is not whole: {why}")]
    Cut {
        /// The message of the parser.
        why: String,
    },
    /// A listing of the old kind, or one that does not say whether more pages follow.
    #[error("the answer to a listing does not say where it goes on ({why}); does this server know ListObjectsV2?")]
    NoContinuation {
        /// The missing part.
        why: &'static str,
    },
    /// A listing that contradicts itself or the request.
    #[error("the answer to a listing cannot be right: {why}")]
    Contradiction {
        /// The contradiction.
        why: String,
    },
}

impl ListingProblem {
    /// Whether this is how the server lists, and not something that passes by itself.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::NoContinuation { .. } | Self::Contradiction { .. })
    }
}

/// Checks one page.
pub(super) fn check(dialect: Dialect, asked: &Asked, body: &[u8]) -> Result<(), ListingProblem> {
    let page = Page::read(dialect, asked, body)?;
    let contradiction = |why: String| Err(ListingProblem::Contradiction { why });
    if dialect == Dialect::S3 && page.has_marker && page.count.is_none() {
        return Err(ListingProblem::NoContinuation { why: "it is of version 1" });
    }
    let more = match dialect {
        Dialect::S3 => match page.truncated.as_deref() {
            Some("true") => true,
            Some("false") => false,
            Some(other) => return contradiction(format!("IsTruncated is {other:?}")),
            None => return Err(ListingProblem::NoContinuation { why: "IsTruncated is missing" }),
        },
        Dialect::Azure if !page.has_blobs => return contradiction("Blobs is missing".to_owned()),
        Dialect::Azure => match &page.token {
            Some(token) => !token.is_empty(),
            None => return Err(ListingProblem::NoContinuation { why: "NextMarker is missing" }),
        },
    };
    let token = page.token.as_deref().filter(|token| !token.is_empty());
    match (more, token) {
        (true, None) => return Err(ListingProblem::NoContinuation { why: "it is truncated, without a token" }),
        (false, Some(_)) => return contradiction("it is complete and has a token to go on".to_owned()),
        (true, Some(token)) if asked.token.as_deref() == Some(token) => {
            return contradiction("it goes on where it began".to_owned());
        }
        _ => {}
    }
    if let Some(count) = &page.count
        && count.parse() != Ok(page.entries)
    {
        return contradiction(format!("it announces {count:?} entries and has {}", page.entries));
    }
    match page.prefix {
        Some(prefix) if prefix != asked.prefix => {
            contradiction(format!("it is for the prefix {prefix:?}, asked was {:?}", asked.prefix))
        }
        // Every entry was compared with it; some servers do not repeat it.
        _ => Ok(()),
    }
}

/// The statements of one page about itself.
#[derive(Debug, Default)]
struct Page {
    truncated: Option<String>,
    token: Option<String>,
    count: Option<String>,
    prefix: Option<String>,
    has_blobs: bool,
    /// Whether it names the key that it begins after, as only the old listing of S3 does.
    has_marker: bool,
    entries: u64,
}

impl Page {
    fn read(dialect: Dialect, asked: &Asked, body: &[u8]) -> Result<Self, ListingProblem> {
        let (root, server) = match dialect {
            Dialect::S3 => ("ListBucketResult", "an S3 server"),
            Dialect::Azure => ("EnumerationResults", "Azure Blob Storage"),
        };
        let foreign = || {
            let start = String::from_utf8_lossy(body.get(..4 * QUOTED).unwrap_or(body));
            ListingProblem::Foreign { start: start.trim_start().chars().take(QUOTED).collect(), server }
        };
        let cut = |why: String| ListingProblem::Cut { why };
        let mut reader = Reader::from_reader(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body));
        let (mut page, mut place, mut text, mut seen_root) = (Self::default(), Vec::new(), String::new(), false);
        let mut named = false;
        loop {
            let event =
                reader.read_event().map_err(|error| if seen_root { cut(error.to_string()) } else { foreign() })?;
            let closes = matches!(event, Event::Empty(_));
            match event {
                Event::Start(start) | Event::Empty(start) => {
                    let name = local_name(&start);
                    if place.is_empty() && (seen_root || name != root) {
                        return Err(foreign());
                    }
                    seen_root = true;
                    text.clear();
                    place.push(name);
                    named &= !is_entry(dialect, &place);
                    if closes {
                        page.close(dialect, asked, &mut place, &mut text, &mut named)?;
                    }
                }
                Event::End(_) => page.close(dialect, asked, &mut place, &mut text, &mut named)?,
                Event::Text(part) => {
                    let part = part.decode().map_err(|error| cut(error.to_string()))?;
                    if place.is_empty() && !part.trim().is_empty() {
                        return Err(if seen_root { cut("text follows its end".to_owned()) } else { foreign() });
                    }
                    text.push_str(&part);
                }
                Event::CData(part) => {
                    text.push_str(&part.decode().map_err(|error| cut(error.to_string()))?);
                }
                Event::GeneralRef(reference) => {
                    let name = reference.decode().map_err(|error| cut(error.to_string()))?;
                    match (reference.resolve_char_ref(), escape::resolve_predefined_entity(&name)) {
                        (Ok(Some(char)), _) => text.push(char),
                        (_, Some(entity)) => text.push_str(entity),
                        _ => return Err(cut(format!("&{name}; is unknown"))),
                    }
                }
                Event::Eof if !seen_root => return Err(foreign()),
                Event::Eof if !place.is_empty() => return Err(cut("it ends early".to_owned())),
                Event::Eof => return Ok(page),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
    }

    /// An element ends: uses its content.
    fn close(
        &mut self,
        dialect: Dialect,
        asked: &Asked,
        place: &mut Vec<String>,
        text: &mut String,
        named: &mut bool,
    ) -> Result<(), ListingProblem> {
        let names: Vec<&str> = place.iter().skip(1).map(String::as_str).collect();
        let mut once = |slot: &mut Option<String>, name: &str| match slot.replace(std::mem::take(text)) {
            None => Ok(()),
            Some(_) => Err(ListingProblem::Contradiction { why: format!("{name} comes twice") }),
        };
        match (dialect, names.as_slice()) {
            (Dialect::S3, ["IsTruncated"]) => once(&mut self.truncated, "IsTruncated")?,
            (Dialect::S3, ["NextContinuationToken"]) => once(&mut self.token, "NextContinuationToken")?,
            (Dialect::S3, ["KeyCount"]) => once(&mut self.count, "KeyCount")?,
            (Dialect::Azure, ["NextMarker"]) => once(&mut self.token, "NextMarker")?,
            (_, ["Prefix"]) => once(&mut self.prefix, "Prefix")?,
            (Dialect::S3, ["Marker"]) => self.has_marker = true,
            (Dialect::Azure, ["Blobs"]) => self.has_blobs = true,
            (Dialect::S3, ["Contents", "Key"]) | (Dialect::Azure, ["Blobs", "Blob", "Name"]) => {
                if !text.starts_with(&asked.prefix) {
                    let why = format!("it names {text:?}, asked was for {:?}", asked.prefix);
                    return Err(ListingProblem::Contradiction { why });
                }
                *named = true;
            }
            (Dialect::S3, ["CommonPrefixes"]) => self.entries += 1,
            _ if is_entry(dialect, place) => {
                if !*named {
                    return Err(ListingProblem::Contradiction { why: "an entry has no name".to_owned() });
                }
                self.entries += 1;
            }
            _ => {}
        }
        place.pop();
        text.clear();
        Ok(())
    }
}

/// Whether an object is described here.
fn is_entry(dialect: Dialect, place: &[String]) -> bool {
    let entry: &[&str] = match dialect {
        Dialect::S3 => &["Contents"],
        Dialect::Azure => &["Blobs", "Blob"],
    };
    place.len() == entry.len() + 1 && place.iter().skip(1).eq(entry.iter())
}

/// The name of an element without its namespace.
fn local_name(start: &BytesStart<'_>) -> String {
    String::from_utf8_lossy(start.local_name().as_ref()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

    fn s3(inside: &str) -> Result<(), ListingProblem> {
        let asked = Asked { prefix: "pre/data/".to_owned(), token: Some("here".to_owned()) };
        let body = format!(
            "{HEAD}<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</ListBucketResult>"
        );
        check(Dialect::S3, &asked, body.as_bytes())
    }

    fn azure(inside: &str) -> Result<(), ListingProblem> {
        let asked = Asked { prefix: "pre/data/".to_owned(), token: None };
        let body = format!("\u{feff}{HEAD}<EnumerationResults ContainerName=\"box\">{inside}</EnumerationResults>");
        check(Dialect::Azure, &asked, body.as_bytes())
    }

    fn entry(name: &str) -> String {
        format!("<Contents><Key>{name}</Key><Size>1</Size><Owner><ID>x</ID></Owner></Contents>")
    }

    const EMPTY: &str = "<Prefix>pre/data/</Prefix><IsTruncated>false</IsTruncated>";
    const MORE: &str = "<Prefix>pre/data/</Prefix><IsTruncated>true</IsTruncated>";
    const TOKEN: &str = "<NextContinuationToken>there&amp;</NextContinuationToken>";

    #[test]
    fn whole_listings_are_believed() {
        assert_eq!(s3(EMPTY), Ok(()));
        assert_eq!(s3(&format!("{EMPTY}<KeyCount>0</KeyCount>")), Ok(()));
        let two = format!("{}{}<KeyCount>2</KeyCount>", entry("pre/data/a"), entry("pre/data/b&#x2F;c"));
        assert_eq!(s3(&format!("{EMPTY}{two}<NextContinuationToken/>\n")), Ok(()));
        assert_eq!(s3(&format!("{MORE}{TOKEN}{two}")), Ok(()));
        assert_eq!(azure("<Prefix>pre/data/</Prefix><Blobs /><NextMarker />"), Ok(()));
        let blob = "<Blobs><Blob><Name>pre/data/a</Name><Properties><Etag>x</Etag></Properties></Blob></Blobs>";
        assert_eq!(azure(&format!("<Prefix>pre/data/</Prefix>{blob}<NextMarker>more</NextMarker>")), Ok(()));
        // Without a prefix none need be named.
        let body = format!("{HEAD}<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        assert_eq!(check(Dialect::S3, &Asked::default(), body.as_bytes()), Ok(()));
    }

    #[test]
    fn what_is_no_listing_is_foreign() {
        for body in [
            "",
            " ",
            "OK",
            "{}",
            "<Error><Code>InternalError</Code></Error>",
            "<html><body>Sign in</body></html>",
            "<!DOCTYPE html><html><br></html>",
            "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>",
            "<a/><ListBucketResult/>",
            "text <ListBucketResult/>",
        ] {
            let found = check(Dialect::S3, &Asked::default(), body.as_bytes());
            assert!(matches!(found, Err(ListingProblem::Foreign { .. })), "{body:?}: {found:?}");
        }
        let found = check(Dialect::S3, &Asked::default(), b"<html>\n<body>x").expect_err("foreign");
        let said = "the answer to a listing is no listing: it begins with \"<html>\\n<body>x\"; is this an S3 server?";
        assert_eq!(found.to_string(), said);
        assert!(!found.is_lasting());
    }

    #[test]
    fn a_listing_that_is_cut_anywhere_is_not_whole() {
        let whole = format!("{HEAD}<ListBucketResult>{EMPTY}{}</ListBucketResult>", entry("pre/data/a"));
        let asked = Asked { prefix: "pre/data/".to_owned(), token: None };
        assert_eq!(check(Dialect::S3, &asked, whole.as_bytes()), Ok(()));
        for end in 0..whole.len() {
            let found = check(Dialect::S3, &asked, &whole.as_bytes()[..end]);
            let right = matches!(found, Err(ListingProblem::Foreign { .. } | ListingProblem::Cut { .. }));
            assert!(right, "{end}: {found:?}");
        }
        let twice = format!("{whole}{whole}");
        assert!(check(Dialect::S3, &asked, twice.as_bytes()).is_err());
        assert!(check(Dialect::S3, &asked, format!("{whole}x").as_bytes()).is_err());
    }

    #[test]
    fn a_listing_must_say_whether_and_where_it_goes_on() {
        for inside in [
            "<Prefix>pre/data/</Prefix>".to_owned(),
            MORE.to_owned(),
            format!("{MORE}<NextContinuationToken></NextContinuationToken>"),
            // The old interface's words.
            format!("{MORE}<NextMarker>there</NextMarker>"),
            format!("{EMPTY}<Marker></Marker>"),
        ] {
            let found = s3(&inside);
            assert!(matches!(found, Err(ListingProblem::NoContinuation { .. })), "{inside}: {found:?}");
        }
        assert!(azure("<Prefix>pre/data/</Prefix><Blobs/>").expect_err("no marker").is_lasting());
    }

    #[test]
    fn a_listing_that_contradicts_itself_or_the_request_is_refused() {
        for inside in [
            format!("{EMPTY}{TOKEN}"),
            format!("{EMPTY}<KeyCount>1</KeyCount>"),
            format!("{EMPTY}<KeyCount>2</KeyCount>{}", entry("pre/data/a")),
            format!("{EMPTY}<KeyCount>x</KeyCount>"),
            format!("{EMPTY}<IsTruncated>false</IsTruncated>"),
            format!("{EMPTY}{}", entry("pre/keys/a")),
            format!("{EMPTY}<Contents><Size>1</Size></Contents>"),
            format!("{EMPTY}{}<Contents/>", entry("pre/data/a")),
            format!("{MORE}<NextContinuationToken>here</NextContinuationToken>"),
            "<Prefix/><IsTruncated>false</IsTruncated>".to_owned(),
            "<Prefix>pre/</Prefix><IsTruncated>false</IsTruncated>".to_owned(),
            "<Prefix>pre/data/</Prefix><IsTruncated>maybe</IsTruncated>".to_owned(),
        ] {
            let found = s3(&inside);
            assert!(matches!(found, Err(ListingProblem::Contradiction { .. })), "{inside}: {found:?}");
        }
        assert!(azure("<Prefix>pre/data/</Prefix><NextMarker/>").is_err());
        let other = "<Prefix>pre/data/</Prefix><Blobs><Blob><Name>pre/x</Name></Blob></Blobs><NextMarker/>";
        assert!(azure(other).is_err());
    }
}
