//! The seven rounds of BLAKE3's compression function, written once for registers of any width.
//!
//! Macros and not generic functions: every call must be inlined into a function that enables the
//! CPU feature, and only a macro promises that. The user has `add`, `xor` and the four rotations in
//! scope. All indices are constants, so the arrays become registers and permuting the message costs
//! nothing.

/// Four quarter rounds side by side, on the columns or the diagonals of the state, each with two
/// message words.
///
/// Each step is written for all four before the next one. The compiler keeps the order, and four
/// independent chains keep the processor's units busy where one chain would wait for its own
/// results.
macro_rules! mix {
    ($v:ident, $m:ident, $($a:literal $b:literal $c:literal $d:literal $x:literal $y:literal),*) => {
        $($v[$a] = add(add($v[$a], $m[$x]), $v[$b]);)*
        $($v[$d] = rotate_16(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_12(xor($v[$b], $v[$c]));)*
        $($v[$a] = add(add($v[$a], $m[$y]), $v[$b]);)*
        $($v[$d] = rotate_8(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_7(xor($v[$b], $v[$c]));)*
    };
}

/// Columns, then diagonals, then the message permutation.
macro_rules! round {
    ($v:ident, $m:ident) => {
        mix!($v, $m, 0 4 8 12 0 1, 1 5 9 13 2 3, 2 6 10 14 4 5, 3 7 11 15 6 7);
        mix!($v, $m, 0 5 10 15 8 9, 1 6 11 12 10 11, 2 7 8 13 12 13, 3 4 9 14 14 15);
        $m = [
            $m[2], $m[6], $m[3], $m[10], $m[7], $m[0], $m[4], $m[13], $m[1], $m[11], $m[12], $m[5], $m[9], $m[14], $m[15],
            $m[8],
        ];
    };
}

/// All rounds. The result of the last permutation in `m` is not used.
macro_rules! all_rounds {
    ($v:ident, $m:ident) => {
        round!($v, $m);
        round!($v, $m);
        round!($v, $m);
        round!($v, $m);
        round!($v, $m);
        round!($v, $m);
        round!($v, $m);
        let _ = $m;
    };
}

pub(super) use {all_rounds, mix, round};
