//! The form of the records of each table.

use larder_format::index_manifest::Table;
use larder_format::run::{RecordLayout, ValueWidth};

/// Keys and values of a table's records; the typed views define their contents.
pub const fn layout_of(table: Table) -> RecordLayout {
    match table {
        Table::Chunks => RecordLayout { key_len: 20, value: ValueWidth::Fixed(8) },
        Table::Containers => RecordLayout { key_len: 4, value: ValueWidth::Variable },
        Table::Extents => RecordLayout { key_len: 21, value: ValueWidth::Variable },
        Table::Streams | Table::Copies => RecordLayout { key_len: 24, value: ValueWidth::Fixed(4) },
    }
}
