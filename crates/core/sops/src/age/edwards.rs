//! From a point of Ed25519 to the one of X25519 that stands for it: u = (1 + y) / (1 - y).
//!
//! Only public keys come here, so the arithmetic need not hide how long it takes.

/// A number modulo 2^255 - 19, in five parts of 51 bits.
type Field = [u64; 5];

const MASK: u64 = (1 << 51) - 1;
const ONE: Field = [1, 0, 0, 0, 0];
/// Four times the modulus, part by part: enough to take any reduced number away from.
const MANY: Field =
    [0x1F_FFFF_FFFF_FFB4, 0x1F_FFFF_FFFF_FFFC, 0x1F_FFFF_FFFF_FFFC, 0x1F_FFFF_FFFF_FFFC, 0x1F_FFFF_FFFF_FFFC];

/// Converts a public key. One that is no point gives an answer too, which no secret key belongs to.
pub fn to_montgomery(ed25519: &[u8; 32]) -> [u8; 32] {
    let y = read(ed25519);
    let above = carried(std::array::from_fn(|i| ONE[i] + y[i]));
    let below = carried(std::array::from_fn(|i| ONE[i] + MANY[i] - y[i]));
    write(multiply(above, invert(below)))
}

/// Reads 255 bits; the last one is the sign of x.
fn read(bytes: &[u8; 32]) -> Field {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    [word(0) & MASK, word(6) >> 3 & MASK, word(12) >> 6 & MASK, word(19) >> 1 & MASK, word(24) >> 12 & MASK]
}

fn write(field: Field) -> [u8; 32] {
    let mut parts = carried(carried(field));
    // Adding 19 overflows exactly when the number is not below the modulus.
    let mut overflow = parts.iter().fold(19, |carry, part| (part + carry) >> 51);
    overflow *= 19;
    for part in &mut parts {
        *part += overflow;
        overflow = *part >> 51;
        *part &= MASK;
    }
    let mut bytes = [0; 32];
    for bit in 0..255 {
        let set = parts[bit / 51] >> (bit % 51) & 1;
        bytes[bit / 8] |= u8::from(set == 1) << (bit % 8);
    }
    bytes
}

/// Moves what is above 51 bits to the next part.
fn carried(mut parts: Field) -> Field {
    let mut carry = 0;
    for part in &mut parts {
        *part += carry;
        carry = *part >> 51;
        *part &= MASK;
    }
    parts[0] += 19 * carry;
    parts
}

fn multiply(a: Field, b: Field) -> Field {
    let mut wide = [0_u128; 5];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            let fold = if i + j < 5 { 1 } else { 19 };
            wide[(i + j) % 5] += u128::from(*x) * u128::from(*y) * fold;
        }
    }
    let mut parts = [0; 5];
    let mut carry = 0;
    for (part, sum) in parts.iter_mut().zip(wide) {
        let sum = sum + carry;
        *part = u64::try_from(sum & u128::from(MASK)).unwrap_or_default();
        carry = sum >> 51;
    }
    // The carry has at most 64 bits less than the products: it fits after one more round.
    let first = u128::from(parts[0]) + carry * 19;
    parts[0] = u64::try_from(first & u128::from(MASK)).unwrap_or_default();
    parts[1] += u64::try_from(first >> 51).unwrap_or_default();
    carried(parts)
}

/// Raises to the power of 2^255 - 21.
fn invert(field: Field) -> Field {
    let mut power = ONE;
    for bit in (0..255).rev() {
        power = multiply(power, power);
        // All bits of 2^255 - 21 are set, but for the second and the fourth.
        if bit != 2 && bit != 4 {
            power = multiply(power, field);
        }
    }
    power
}
