import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "src/api/api.d.ts"] }, // generated
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "max-lines-per-function": ["error", { max: 70, skipBlankLines: true, skipComments: true }],
    },
  },
  { files: ["public/docs/*.js"], languageOptions: { globals: { fetch: "readonly", location: "readonly", SwaggerUIBundle: "readonly" } } },
  { files: ["**/*.test.{ts,tsx}"], rules: { "max-lines-per-function": "off" } },
  hooks.configs.flat["recommended-latest"] ?? hooks.configs.flat.recommended,
);
