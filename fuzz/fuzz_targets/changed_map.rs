//! Maps of changes in files: text, JSON, and XML of `thin_delta`.

#![no_main]

use std::path::Path;

use larder_source::image::read_map_from;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read = |mut bytes: &[u8]| read_map_from(Path::new("map"), &mut bytes);
    let Ok(map) = read(bytes) else { return };
    assert!(map.ranges.iter().all(|range| range.start < range.end));
    assert!(map.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    // Whatever the form was, the ranges are the same as text.
    let text: String =
        map.ranges.iter().map(|range| format!("{} {}\n", range.start, range.end - range.start)).collect();
    let again = read(format!("#\n{text}").as_bytes()).expect("it was read");
    assert_eq!(again.ranges, map.ranges);
});
