//! A round of AES on one column, by tables that the compiler computes from the definition of AES.

/// A round: the S-box on each byte, then MixColumns. Byte 0 of the column is the lowest.
pub(super) fn round(column: u32) -> u32 {
    let [a, b, c, d] = column.to_le_bytes().map(usize::from);
    TABLES[0][a] ^ TABLES[1][b] ^ TABLES[2][c] ^ TABLES[3][d]
}

/// For each byte of a column and each value of it, its share in the round's column.
static TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut value = 0;
    while value < 256 {
        let s = substituted(value as u8);
        // The first column of the matrix of MixColumns. Each next one is turned by a byte.
        let share = u32::from_le_bytes([product(s, 2), s, s, product(s, 3)]);
        let mut byte = 0;
        while byte < 4 {
            tables[byte][value] = share.rotate_left(8 * byte as u32);
            byte += 1;
        }
        value += 1;
    }
    tables
}

/// The S-box: the inverse in the field, then an affine map of its bits.
const fn substituted(value: u8) -> u8 {
    // The inverse is the power 254 = 2 + 4 + ... + 128, which maps 0 to 0.
    let mut inverse = 1;
    let mut power = value;
    let mut squarings = 0;
    while squarings < 7 {
        power = product(power, power);
        inverse = product(inverse, power);
        squarings += 1;
    }
    let turned = inverse.rotate_left(1) ^ inverse.rotate_left(2) ^ inverse.rotate_left(3) ^ inverse.rotate_left(4);
    inverse ^ turned ^ 0x63
}

/// The product in the field of AES: polynomials modulo x^8 + x^4 + x^3 + x + 1.
const fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        let carry = a >> 7;
        a = (a << 1) ^ (carry * 0x1b);
        b >>= 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of FIPS 197: the S-box, and the first column of round 1 in appendix B.
    #[test]
    fn rounds_are_those_of_aes() {
        assert_eq!([0x00, 0x53, 0xff].map(substituted), [0x63, 0xed, 0x16]);
        let mut seen = [false; 256];
        (0..=255).for_each(|value| seen[usize::from(substituted(value))] = true);
        assert_eq!(seen, [true; 256]);
        let before =
            [0xd4, 0xbf, 0x5d, 0x30_u8].map(|s| (0..=255).find(|&x| substituted(x) == s).expect("permutation"));
        assert_eq!(round(u32::from_le_bytes(before)).to_le_bytes(), [0x04, 0x66, 0x81, 0xe5]);
    }
}
