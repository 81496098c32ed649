"""Solutions of the exercises of chapter 5, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="05-cf25475e",
        wrong={
            "looks ahead": """
                return sharpness * offset_rotation(k, d_model)
            """,
            "the transpose of the right matrix": """
                return sharpness * offset_rotation(-k, d_model).T
            """,
            "forgets the sharpness": """
                return offset_rotation(-k, d_model)
            """,
            "a sharpness that is always enough": """
                return 1000 * offset_rotation(-k, d_model)
            """,
            "one step back, whatever k is": """
                return sharpness * offset_rotation(-1, d_model)
            """,
            "sharpens by the root": """
                return sharpness**0.5 * offset_rotation(-k, d_model)
            """,
            "divides by the root of d as well": """
                return sharpness * offset_rotation(-k, d_model) / math.sqrt(d_model)
            """,
            "multiplies the offset": """
                return offset_rotation(-k * sharpness, d_model)
            """,
            "always of width 64": """
                return sharpness * offset_rotation(-k, 64)
            """,
            "rotates the slowest hands only": """
                R = torch.eye(d_model, dtype=torch.float64)
                R[2:, 2:] = offset_rotation(-k, d_model)[2:, 2:]
                return sharpness * R
            """,
            "the blocks in double speed": """
                return sharpness * offset_rotation(-2 * k, d_model)
            """,
            "sharpens at every step": """
                R = sharpness * offset_rotation(-1, d_model)
                return torch.linalg.matrix_power(R, k)
            """,
            "shifts the channels": """
                eye = torch.eye(d_model, dtype=torch.float64)
                return sharpness * torch.roll(eye, -k, dims=0)
            """,
            "all sines first": """
                R = offset_rotation(-k, d_model)
                order = [*range(0, d_model, 2), *range(1, d_model, 2)]
                return sharpness * R[order][:, order]
            """,
            "fitted to the first positions": """
                table = SinusoidalPositionalEncoding(d_model, k + 12).table.double()
                X = torch.linalg.lstsq(table[k:], table[:-k]).solution
                return sharpness * X.T
            """,
        },
        right={
            "one step, k times": """
                R = torch.linalg.matrix_power(offset_rotation(1, d_model).T, k)
                return R * sharpness
            """,
            "from the encodings themselves": """
                PE = SinusoidalPositionalEncoding(d_model, k + 1).table.double()
                sin, cos = PE[k, 0::2], PE[k, 1::2]
                R = torch.zeros(d_model, d_model, dtype=torch.float64)
                for i in range(d_model // 2):
                    R[2 * i, 2 * i] = R[2 * i + 1, 2 * i + 1] = cos[i]
                    R[2 * i, 2 * i + 1], R[2 * i + 1, 2 * i] = -sin[i], sin[i]
                return sharpness * R
            """,
        },
    ),
    Exercise(
        cell="05-f19596e9",
        wrong={
            "the halves exchanged": """
                half = d_model // 2
                row = SinusoidalPositionalEncoding(half, rows).table.unsqueeze(1)
                column = SinusoidalPositionalEncoding(half, columns).table.unsqueeze(0)
                shape = (rows, columns, half)
                return torch.cat([column.expand(shape), row.expand(shape)], dim=-1)
            """,
            "adds the two encodings": """
                row = SinusoidalPositionalEncoding(d_model, rows).table.unsqueeze(1)
                column = SinusoidalPositionalEncoding(d_model, columns).table
                return row + column
            """,
            "numbers the patches": """
                table = SinusoidalPositionalEncoding(d_model, rows * columns).table
                return table.view(rows, columns, d_model)
            """,
            "cuts one wide table in half": """
                half = d_model // 2
                n = max(rows, columns)
                table = SinusoidalPositionalEncoding(d_model, n).table[:, :half]
                row, column = table[:rows].unsqueeze(1), table[:columns].unsqueeze(0)
                shape = (rows, columns, half)
                return torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
            """,
            "interleaves row and column": """
                half = d_model // 2
                row = SinusoidalPositionalEncoding(half, rows).table.unsqueeze(1)
                column = SinusoidalPositionalEncoding(half, columns).table.unsqueeze(0)
                shape = (rows, columns, half)
                pair = [row.expand(shape), column.expand(shape)]
                return torch.stack(pair, dim=-1).flatten(-2)
            """,
            "columns first": """
                half = d_model // 2
                row = SinusoidalPositionalEncoding(half, rows).table.unsqueeze(0)
                column = SinusoidalPositionalEncoding(half, columns).table.unsqueeze(1)
                shape = (columns, rows, half)
                grid = torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
                return grid.reshape(rows, columns, d_model)
            """,
            "all sines first": """
                half = d_model // 2
                row = concatenated(SinusoidalPositionalEncoding(half, rows).table)
                column = concatenated(SinusoidalPositionalEncoding(half, columns).table)
                shape = (rows, columns, half)
                row, column = row.unsqueeze(1), column.unsqueeze(0)
                return torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
            """,
            "counts from one": """
                half = d_model // 2
                row = SinusoidalPositionalEncoding(half, rows + 1).table[1:]
                column = SinusoidalPositionalEncoding(half, columns + 1).table[1:]
                shape = (rows, columns, half)
                row, column = row.unsqueeze(1), column.unsqueeze(0)
                return torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
            """,
            "the wavelengths of the whole width": """
                angles = torch.arange(max(rows, columns))[:, None] * 10000 ** (
                    -torch.arange(0, d_model // 2, 2) / d_model
                )
                table = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
                shape = (rows, columns, d_model // 2)
                row, column = table[:rows].unsqueeze(1), table[:columns].unsqueeze(0)
                return torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
            """,
            "the column in the whole image": """
                half = d_model // 2
                patch = torch.arange(rows * columns).view(rows, columns)
                table = SinusoidalPositionalEncoding(half, rows * columns).table
                return torch.cat([table[patch // columns], table[patch]], dim=-1)
            """,
            "rows from the bottom": """
                half = d_model // 2
                row = SinusoidalPositionalEncoding(half, rows).table.flip(0)
                column = SinusoidalPositionalEncoding(half, columns).table
                shape = (rows, columns, half)
                row, column = row.unsqueeze(1), column.unsqueeze(0)
                return torch.cat([row.expand(shape), column.expand(shape)], dim=-1)
            """,
            "the same positions on both axes": """
                half = d_model // 2
                side = torch.arange(rows * columns) % rows
                table = SinusoidalPositionalEncoding(half, rows * columns).table
                row, column = table[side], table[side // columns]
                return torch.cat([row, column], -1).view(rows, columns, d_model)
            """,
        },
        right={
            "one patch after the other": """
                row = encoding_by_loops(d_model // 2, rows)
                column = encoding_by_loops(d_model // 2, columns)
                grid = torch.empty(rows, columns, d_model)
                for i in range(rows):
                    for j in range(columns):
                        grid[i, j] = torch.cat([row[i], column[j]])
                return grid
            """,
            "the module adds to zeros": """
                half = d_model // 2
                zeros = torch.zeros(rows, columns, half)
                column = SinusoidalPositionalEncoding(half, columns)(zeros)
                row = SinusoidalPositionalEncoding(half, rows)(zeros.transpose(0, 1))
                return torch.cat([row.transpose(0, 1), column], dim=-1)
            """,
        },
    ),
]
